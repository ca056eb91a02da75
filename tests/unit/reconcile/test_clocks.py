# SPDX-License-Identifier: Apache-2.0
"""Wall clocks order nothing: what is observed, what an operation did, and which operation comes first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_world import FakeClock

HOUR_S = 3600.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made
        made.reconciler.close()


def jump(plane: ControlPlane, seconds: float) -> None:
    """The wall clock alone."""
    clock = plane.world.clock
    assert isinstance(clock, FakeClock)
    clock.ahead += seconds


def codes(plane: ControlPlane) -> list[str]:
    return [one.finding.code for one in plane.findings.observe(T4_HOST)]


@pytest.mark.fault("F101")
def test_after_a_clock_excursion_a_healthy_vm_is_not_missed(plane: ControlPlane) -> None:
    jump(plane, HOUR_S)
    assert codes(plane) == []
    jump(plane, -HOUR_S)
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert codes(plane) == []


def test_what_was_observed_before_an_operation_ended_is_not_believed_after_a_jump(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    jump(plane, -HOUR_S)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert codes(plane) == []
    assert plane.services.vms.get("default", "train").state == "stopped"


def test_a_delete_that_was_asked_for_after_a_jump_back_comes_after_the_create(plane: ControlPlane) -> None:
    made = plane.services.vms.create(create_vm()).operation
    jump(plane, -HOUR_S)
    deleted = plane.services.vms.delete("default", "train").operation
    with plane.store.read() as tx:
        (due,) = [one.operation for one in tx.operations.due() if one.operation in {made, deleted}]
    assert due == made
