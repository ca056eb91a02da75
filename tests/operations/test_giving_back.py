# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.operation import Operation
from tests.fakes.control_plane import L40S_HOST, ControlPlane, plane_with
from tests.fakes.fake_host import no_fault


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, L40S_HOST) as made:
        made.services.networks.add("lab", None)
        yield made


def remove_while(plane: ControlPlane, *failing: str) -> Operation:
    """Giving the host back, with a host that refuses these actions before they have any effect."""
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("gpu.stubborn", "it did not obey") if moment == "before" and name in failing else None
    )
    started = plane.services.hosts.remove(L40S_HOST)
    plane.engine.drain()
    plane.hosts.strike = no_fault
    return plane.services.operations.get(str(started.operation))


def test_a_host_that_is_not_given_back_after_all_has_its_functions_again(plane: ControlPlane) -> None:
    before = plane.machine(L40S_HOST).state()
    assert remove_while(plane, "RemoveNetwork").state == "undone"
    assert all(gpu.enabled for gpu in plane.machine(L40S_HOST).gpus)
    assert plane.machine(L40S_HOST).state() == before
    with plane.store.read() as tx:
        assert len(tx.hosts.enabled_by_us(L40S_HOST)) == len(plane.machine(L40S_HOST).gpus)


def test_a_host_that_is_not_given_back_after_all_takes_vms_again(plane: ControlPlane) -> None:
    assert remove_while(plane, "DisableVirtualFunctions").state == "undone"
    assert plane.services.hosts.get(L40S_HOST).host.state == "ready"


def test_a_removal_that_got_stuck_on_its_way_back_goes_on_back_and_not_onward(plane: ControlPlane) -> None:
    before = plane.machine(L40S_HOST).state()
    stuck = remove_while(plane, "RemoveNetwork", "EnableVirtualFunctions")
    assert stuck.state == "stuck"
    assert "undo_failed" in {step.state for step in stuck.steps}
    assert plane.services.operations.retry(stuck.id).state == "undoing"
    plane.engine.drain()
    assert plane.services.operations.get(stuck.id).state == "undone"
    assert plane.machine(L40S_HOST).state() == before
    assert plane.services.hosts.get(L40S_HOST).host.state == "ready"
