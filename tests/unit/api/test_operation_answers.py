# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.api.schemas.operations import OperationAnswer
from orchestrator.cli.ages import waits_for
from orchestrator.cli.commands.operation import details
from orchestrator.core.operation import HostWait, OperationState, WaitState
from tests.contract.store.test_store import operation

ONE = replace(operation(), state="running", guest_wait="waiting")


@pytest.mark.parametrize("watching", [True, False])
def test_an_operation_says_that_it_waits_for_its_guest_to_boot(watching: bool) -> None:
    told = OperationAnswer.of(ONE, 1, watching=watching).model_dump(mode="json")
    assert waits_for(told) == "its guest to boot"
    (line,) = (line for line in details(told) if line.startswith("waits for"))
    assert "its guest to boot" in line
    assert not any(line.startswith("way out") for line in details(told))


@pytest.mark.parametrize(
    ("state", "wait"), [("running", None), ("running", "tried"), ("running", "over"), ("done", "waiting")]
)
def test_an_operation_that_goes_on_or_has_ended_waits_for_no_guest(state: OperationState, wait: WaitState) -> None:
    told = OperationAnswer.of(replace(ONE, state=state, guest_wait=wait), 1, watching=True).model_dump(mode="json")
    assert told["waits_for_guest"] is False
    assert waits_for(told) is None


def test_a_run_that_goes_on_when_the_guest_has_booted_is_no_attempt_of_its_own() -> None:
    told = OperationAnswer.of(replace(ONE, attempt=3, went_on=2), 1, watching=True).model_dump(mode="json")
    assert told["attempt"] == 1


def test_a_host_out_of_reach_is_told_before_the_guest() -> None:
    away = replace(ONE, host_wait=HostWait(host="h1", since=1795255200.0, state="waiting"))
    told = OperationAnswer.of(away, 1, watching=True).model_dump(mode="json")
    assert told["waits_for_guest"] is False
    assert str(waits_for(told)).startswith("host h1 since ")


def test_an_older_server_says_nothing_of_guests() -> None:
    told = OperationAnswer.of(ONE, 1, watching=True).model_dump(mode="json", exclude={"waits_for_guest"})
    assert waits_for(told) is None
