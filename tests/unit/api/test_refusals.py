# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NoReturn, cast

from orchestrator.core.errors import Retryable
from orchestrator.store.database import Store
from tests.fakes.services import InMemory
from tests.unit.api.asking import Asking, serving


class _LostWhileWriting:
    def begin(self) -> AbstractContextManager[NoReturn]:
        raise Retryable("store.connection_lost", "the connection to the database was lost", hint="try again")


def test_a_refusal_that_cannot_be_put_on_record_is_answered_with_why() -> None:
    fake = InMemory()
    fake.record_enrolled()
    lost = replace(fake.tenancy.audit, store=cast(Store, _LostWhileWriting()))
    fake.tenancy = replace(fake.tenancy, audit=lost)
    ask = Asking(serving(fake.as_services()), fake)
    answer = ask("DELETE", "/v1/vms/none?tenant=default")
    assert (answer.status, answer.body["code"]) == (503, "store.connection_lost")
