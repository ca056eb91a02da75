# SPDX-License-Identifier: Apache-2.0
"""How an operation ends that its host refuses, that another attempt overtakes, that two people decide about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.schemas.operations import OperationAnswer
from orchestrator.cli.commands.operation import details
from orchestrator.core.errors import Conflict, Denied, Fatal
from orchestrator.operations.context import Context
from orchestrator.operations.definitions import DEFINITIONS
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import lost_answer, no_fault
from tests.operations.test_vm_life import finished, make


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made


def test_a_host_that_obeys_nobody_any_more_makes_it_stuck_and_says_why(plane: ControlPlane) -> None:
    """The host has seen newer attempts and the database knows of none: it was restored, or its host's ledger was."""
    machine = plane.machine(T4_HOST)

    def lose_the_host(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "CreateVolume"):
            machine.ledger.epoch = 7

    plane.hosts.strike = lose_the_host
    operation = make(plane)
    assert operation.state == "stuck"
    assert operation.error is not None
    assert operation.error["code"] == "agent.stale_token"
    assert any("volume" in text for text in operation.remainder)
    plane.hosts.strike, machine.ledger.epoch = no_fault, 1
    plane.services.operations.retry(operation.id)
    assert finished(plane, operation.id).state == "undone"
    assert machine.volumes == {}


def test_a_host_that_obeys_nobody_before_anything_was_done_there_says_why(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).ledger.epoch = 7
    operation = make(plane)
    assert operation.state == "undone"
    assert operation.error is not None
    assert operation.error["code"] == "agent.stale_token"


def test_an_attempt_that_another_one_has_overtaken_writes_nothing(plane: ControlPlane) -> None:
    created = plane.services.vms.create(create_vm())
    assert created.operation is not None

    def overtake(_number: int, moment: str, name: str) -> BaseException | None:
        if (moment, name) == ("before", "CreateVolume"):
            plane.hosts.strike = no_fault
            assert plane.journal.take_up(str(created.operation)) is not None
            return Denied("agent.stale_token", "a newer attempt has begun")
        return None

    plane.hosts.strike = overtake
    operation = finished(plane, created.operation)
    assert (operation.state, operation.attempt, operation.error) == ("running", 2, None)
    plane.engine.submit(created.operation)
    assert finished(plane, created.operation).state == "done"


@pytest.mark.parametrize("first", ["abandon", "retry"])
def test_of_a_retry_and_an_abandon_at_once_one_wins_whole(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    plane.hosts.strike = lambda _n, moment, name: (
        Fatal("test.refused", name) if moment == "before" and name in {"MakeVgpu", "RemoveMdev"} else None
    )
    operation = make(plane)
    plane.hosts.strike = no_fault
    outcomes: list[str] = []

    def retry() -> None:
        try:
            plane.services.operations.retry(operation.id)
        except Conflict as refused:
            outcomes.append(refused.code)
        else:
            outcomes.append("retried")

    late = threading.Thread(target=retry)
    real = DEFINITIONS[operation.kind]

    def abandoned(context: Context) -> None:
        late.start()
        late.join(0.3)
        real.abandoned(context)

    if first == "retry":
        retry()
        with pytest.raises(Conflict):
            plane.services.operations.abandon(operation.id)
    else:
        monkeypatch.setitem(DEFINITIONS, operation.kind, replace(real, abandoned=abandoned))
        assert plane.services.operations.abandon(operation.id).state == "undone"
        late.join(30)
    assert outcomes == (["retried"] if first == "retry" else ["operation.not_stuck"])
    assert finished(plane, operation.id).state == "undone"
    assert plane.services.vms.list(None) == ()


def _create_waits(plane: ControlPlane) -> None:
    def cut(_number: int, moment: str, name: str) -> BaseException | None:
        if (moment, name) != ("after", "MakeVgpu"):
            return None
        plane.machine(T4_HOST).answers = False
        return lost_answer(name)

    plane.hosts.strike = cut
    make(plane)


def _stop_waits(plane: ControlPlane) -> None:
    make(plane)
    plane.machine(T4_HOST).answers = False
    plane.look(T4_HOST)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()


def _is_stuck(plane: ControlPlane) -> None:
    plane.hosts.strike = lambda _n, moment, name: (
        Fatal("test.refused", name) if moment == "before" and name in {"MakeVgpu", "RemoveMdev"} else None
    )
    make(plane)


STANDS: dict[str, Callable[[ControlPlane], object]] = {
    "a create waits": _create_waits,
    "a stop waits": _stop_waits,
    "stuck": _is_stuck,
    "done": make,
}
OFFERED = {
    "a create waits": {"cancel", "abandon"}, "a stop waits": {"abandon"}, "stuck": {"retry", "abandon"}, "done": set()
}  # fmt: skip


@pytest.mark.parametrize("way", ["cancel", "retry", "abandon"])
@pytest.mark.parametrize("stands", STANDS)
def test_a_way_out_is_offered_when_it_is_taken_and_only_then(plane: ControlPlane, stands: str, way: str) -> None:
    STANDS[stands](plane)
    (operation, *_) = plane.services.operations.list(limit=1)
    told = OperationAnswer.of(operation, watching=True)
    assert set(told.ways_out) == OFFERED[stands]
    assert set(OperationAnswer.of(operation, watching=False).ways_out) <= {"cancel"}
    lines = details(told.model_dump(mode="json"))
    assert any(f"vgpuctl operation {way} {operation.id}" in line for line in lines) == (way in told.ways_out)
    take = getattr(plane.services.operations, way)
    if way in told.ways_out:
        take(operation.id)
    else:
        with pytest.raises(Conflict):
            take(operation.id)
