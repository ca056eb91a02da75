# SPDX-License-Identifier: Apache-2.0
"""Another machine answers at a host's address: whatever is asked of its VMs, nothing is done there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity, Unknown
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import lost_answer
from tests.operations.volumes import SIZE

ADDRESS = f"{T4_HOST}.test"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs, one that does not, a data volume."""
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.volumes.create("default", "data", SIZE)
        made.services.vms.create(create_vm("runs"))
        made.services.vms.create(create_vm("stopped", start=False))
        made.engine.drain()
        yield made


def exchange(plane: ControlPlane) -> None:
    """For one of the same image: its agent obeys us, its ledger knows none of our VMs."""
    other = copy.deepcopy(plane.hosts.machines[ADDRESS])
    other.machine_id = "another"
    for things in (other.domains, other.volumes, other.seeds, other.mdevs):
        things.clear()
    plane.hosts.machines[ADDRESS] = other


@pytest.mark.fault("F23")
@pytest.mark.parametrize("act", [
    lambda plane: plane.services.vms.stop("default", "runs"),
    lambda plane: plane.services.vms.restart("default", "runs"),
    lambda plane: plane.services.vms.delete("default", "runs"),
    lambda plane: plane.services.vms.start("default", "stopped"),
    lambda plane: plane.services.volumes.attach("default", "data", "stopped"),
], ids=["stop", "restart", "delete", "start", "attach"])  # fmt: skip
def test_on_another_machine_nothing_is_done_until_the_host_is_enrolled_anew(
    plane: ControlPlane, act: Callable[[ControlPlane], object]
) -> None:
    exchange(plane)
    plane.look(T4_HOST)
    before = plane.machine(T4_HOST).state()
    plane.hosts.effects.clear()
    act(plane)
    plane.engine.drain()
    (operation,) = plane.services.operations.list(limit=1)
    assert (operation.error or {})["code"] == "host.quarantined"
    with pytest.raises(NoCapacity):
        plane.services.vms.create(create_vm("new"))
    plane.look(T4_HOST)
    plane.findings.repair(host=T4_HOST)
    plane.engine.drain()
    assert (plane.hosts.effects, plane.machine(T4_HOST).state()) == ([], before)
    assert plane.services.hosts.get(T4_HOST).host.state == "quarantined"
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    for vm in plane.services.vms.list(None):
        plane.services.vms.delete("default", vm.spec.name)
    plane.engine.drain()
    assert plane.services.vms.list(None) == ()


@pytest.mark.fault("F23")
def test_an_operation_that_looks_what_became_of_a_lost_answer_does_not_take_another_machine_for_its_host(
    plane: ControlPlane,
) -> None:
    """No look of the reconciler has found it yet."""

    def strike(_number: int, moment: str, name: str) -> Unknown | None:
        if (moment, name) != ("after", "StopDomain") or plane.machine(T4_HOST).machine_id == "another":
            return None
        exchange(plane)
        return lost_answer(name)

    plane.hosts.strike = strike
    plane.services.vms.delete("default", "runs")
    plane.engine.drain()
    (operation,) = plane.services.operations.list(limit=1)
    assert (operation.state, (operation.error or {})["code"]) == ("stuck", "host.quarantined")
    assert {vm.spec.name for vm in plane.services.vms.list(None)} == {"runs", "stopped"}
