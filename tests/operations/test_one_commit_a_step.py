# SPDX-License-Identifier: Apache-2.0
"""One commit ends a step and begins the next: people see each, and only what was begun is undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.operation import Operation
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash

LATER = "DefineDomain"
"""An effect after several steps on the host."""


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


def test_a_step_is_begun_in_the_database_before_its_effect_and_those_before_it_have_ended(plane: ControlPlane) -> None:
    seen = seen_at(plane, create(plane), LATER, 0.0)
    assert {seen[title] for title in ("disk", "seed", "vGPU")} == {"done"}
    assert seen["definition"] == "running"
    assert seen["start"] == "pending"


def test_each_step_has_times_of_its_own(plane: ControlPlane) -> None:
    operation = create(plane)
    seen_at(plane, operation, LATER, 0.1)
    steps = {step.title: step for step in plane.services.operations.get(operation).steps}
    disk, seed = steps["disk"], steps["seed"]
    assert disk.started_at is not None
    assert disk.finished_at is not None
    assert seed.started_at is not None
    assert 0.1 <= disk.finished_at - disk.started_at < 0.2
    assert disk.finished_at <= seed.started_at


def test_steps_that_were_not_reached_are_pending_and_not_undone(plane: ControlPlane) -> None:
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


def test_a_step_that_an_older_version_had_begun_is_undone_when_the_one_before_it_fails(plane: ControlPlane) -> None:
    operation = create(plane)
    plane.hosts.strike = lambda _number, moment, name: Crash() if (moment, name) == ("after", "WriteSeed") else None
    with pytest.raises(Crash):
        run(plane, operation)
    with plane.store.begin() as tx:  # it began several at once
        steps = tx.operations.get(operation).operation.steps
        at = next(at for at, step in enumerate(steps) if step.title == "disk")
        tx.operations.put_step(operation, at, replace(steps[at], state="running", finished_at=None))
    assert plane.machine(T4_HOST).seeds
    plane.hosts.strike = lambda _number, moment, name: (
        Fatal("test.refused", "no disk") if (moment, name) == ("before", "CreateVolume") else None
    )
    assert run(plane, operation).state == "undone"
    assert not plane.machine(T4_HOST).seeds


def test_a_cancel_between_steps_takes_back_what_was_done(plane: ControlPlane) -> None:
    operation = create(plane)

    def strike(_number: int, moment: str, name: str) -> BaseException | None:
        if (moment, name) == ("after", "WriteSeed"):
            plane.services.operations.cancel(operation)
        return None

    plane.hosts.strike = strike
    assert run(plane, operation).state == "undone"
    assert not plane.machine(T4_HOST).domains
