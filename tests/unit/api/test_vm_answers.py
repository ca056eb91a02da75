# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import TypeAdapter
from pydantic_core import to_json

from orchestrator.api.schemas.vms import VmAnswer, vm_members
from orchestrator.core.vm import Vm
from tests.contract.store.test_store import vm

ONE = vm("one")
TYPED = replace(ONE.devices[0], kind="vendor_vfio", name=ONE.devices[0].parent)


@pytest.mark.parametrize(
    "listed",
    [
        ONE,
        replace(
            ONE, addresses=(), operation="op", lease_end=1795255200.1239, deallocated="lease_over", state="stopped"
        ),
        replace(
            ONE,
            spec=replace(ONE.spec, user_data="secret", label="file", adopted="byhand", boot_policy="ask-controller"),
        ),
        replace(ONE, devices=(TYPED,), created_at=1795255200.0),
        replace(ONE, devices=(*ONE.devices, TYPED)),
    ],
)
@pytest.mark.parametrize("watching", [True, False])
def test_a_vm_in_a_list_is_told_as_a_vm_alone_is(listed: Vm, watching: bool) -> None:
    alone = TypeAdapter(list[VmAnswer]).dump_json([VmAnswer.of(listed, {}, watching=watching)])
    assert to_json([vm_members(listed, {}, watching=watching)]) == alone
