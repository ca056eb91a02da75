# SPDX-License-Identifier: Apache-2.0
"""Quick steps in a row share the commits that begin and end them, and nobody is told less or undoes more for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.operation import Operation
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash

LATER = "DefineDomain"
"""An effect after several quick steps."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    yield made
    made.store.close()


def create(plane: ControlPlane) -> str:
    return str(plane.services.vms.create(create_vm()).operation)


def run(plane: ControlPlane, operation: str) -> Operation:
    Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
    return plane.services.operations.get(operation)


def seen_at(plane: ControlPlane, operation: str, effect: str, each_takes_s: float) -> dict[str, str]:
    """What the database says of the steps, by title, when that effect is about to be had."""
    seen: dict[str, str] = {}

    def strike(_number: int, moment: str, name: str) -> BaseException | None:
        if moment == "after":
            plane.world.clock.sleep(each_takes_s)
        elif name == effect:
            seen.update({step.title: step.state for step in plane.services.operations.get(operation).steps})
        return None

    plane.hosts.strike = strike
    assert run(plane, operation).state == "done"
    return seen


def test_what_a_quick_step_does_is_begun_in_the_database_before_it_is_done(plane: ControlPlane) -> None:
    seen = seen_at(plane, create(plane), LATER, 0.0)
    assert {seen[title] for title in ("disk", "seed", "vGPU", "definition")} == {"running"}
    assert seen["start"] == "pending"


def test_a_host_that_takes_its_time_is_watched_step_by_step(plane: ControlPlane) -> None:
    seen = seen_at(plane, create(plane), LATER, 2.0)
    assert {seen[title] for title in ("disk", "seed", "vGPU")} == {"done"}
    assert seen["definition"] == "running"


def test_each_quick_step_keeps_the_times_of_its_own(plane: ControlPlane) -> None:
    operation = create(plane)
    seen_at(plane, operation, LATER, 0.1)
    steps = {step.title: step for step in plane.services.operations.get(operation).steps}
    disk, seed = steps["disk"], steps["seed"]
    assert disk.started_at is not None
    assert disk.finished_at is not None
    assert seed.started_at is not None
    assert 0.1 <= disk.finished_at - disk.started_at < 0.2
    assert disk.finished_at <= seed.started_at


def test_quick_steps_that_were_not_reached_are_pending_and_not_undone(plane: ControlPlane) -> None:
    operation = create(plane)
    plane.hosts.strike = lambda _number, moment, name: (
        Fatal("test.refused", "no disk") if (moment, name) == ("before", "CreateVolume") else None
    )
    ended = run(plane, operation)
    assert ended.state == "undone"
    states = {step.title: step.state for step in ended.steps}
    assert states["disk"] == "undone"
    assert {states[title] for title in ("seed", "vGPU", "definition", "start")} == {"pending"}
    assert not {"DeleteSeed", "UndefineDomain"} & set(plane.hosts.effects)


def test_a_quick_step_that_an_earlier_attempt_had_done_is_undone_when_the_one_before_it_fails(
    plane: ControlPlane,
) -> None:
    operation = create(plane)
    plane.hosts.strike = lambda _number, moment, name: Crash() if (moment, name) == ("after", "WriteSeed") else None
    with pytest.raises(Crash):
        run(plane, operation)
    assert plane.machine(T4_HOST).seeds
    plane.hosts.strike = lambda _number, moment, name: (
        Fatal("test.refused", "no disk") if (moment, name) == ("before", "CreateVolume") else None
    )
    assert run(plane, operation).state == "undone"
    assert not plane.machine(T4_HOST).seeds


def test_a_cancel_among_quick_steps_takes_back_what_was_done(plane: ControlPlane) -> None:
    operation = create(plane)

    def strike(_number: int, moment: str, name: str) -> BaseException | None:
        if (moment, name) == ("after", "WriteSeed"):
            plane.services.operations.cancel(operation)
        return None

    plane.hosts.strike = strike
    assert run(plane, operation).state == "undone"
    assert not plane.machine(T4_HOST).domains
