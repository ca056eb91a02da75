# SPDX-License-Identifier: Apache-2.0
"""VMs of a host that is dead, and what it does when it is back, for scenes."""

from __future__ import annotations

from orchestrator.services.begin import new_operation, record
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, ControlPlane
from tests.fakes.fake_fencing import FakeFencing, switch_off
from tests.operations import pools
from tests.operations.moves import OTHER


def dies(plane: ControlPlane, host: str = L40S_HOST) -> None:
    """It is off, and the server has noticed."""
    switch_off(plane.hosts, host)
    plane.observer.observe(host)


def _known_again(plane: ControlPlane) -> None:
    """The size of the pool too, so that looking at the host changes nothing."""
    plane.observer.observe(OTHER)


def comes_back(plane: ControlPlane) -> None:
    plane.machine(L40S_HOST).answers = True
    plane.observer.observe(L40S_HOST)


def fencing(plane: ControlPlane) -> FakeFencing:
    assert isinstance(plane.world.fencing, FakeFencing)
    return plane.world.fencing


def _with_dead_host(plane: ControlPlane) -> None:
    pools.with_running_vm(plane)
    dies(plane)
    _known_again(plane)


def _with_stopped_vm(plane: ControlPlane) -> None:
    pools.with_stopped_vm(plane)
    dies(plane)
    _known_again(plane)


def _with_host_back(plane: ControlPlane) -> None:
    _with_dead_host(plane)
    _evacuate(plane)
    plane.engine.drain()
    comes_back(plane)


def _evacuate(plane: ControlPlane) -> str | None:
    return plane.services.moving.move(MoveVm(name="train", tenant="default", evacuate=True)).operation


def _fence(plane: ControlPlane) -> str:
    return _on_host(plane, "fence_host", {})


def _give_up(plane: ControlPlane) -> str:
    return _on_host(plane, "give_up_vms", {"vms": [plane.services.vms.get("default", "train").id]})


def _on_host(plane: ControlPlane, kind: str, inputs: dict[str, object]) -> str:
    """As the keeper begins it."""
    with plane.store.begin() as tx:
        host = tx.hosts.get(L40S_HOST)
        operation = new_operation(kind, host, clock=plane.world.clock, ids=plane.ids)
        record(tx, operation, host=host.name, inputs=inputs)
    plane.engine.submit(operation.id)
    return operation.id


CASES = (
    ("evacuate vm", "evacuate_vm", _with_dead_host, _evacuate),
    ("evacuate stopped vm", "evacuate_stopped_vm", _with_stopped_vm, _evacuate),
    ("fence host", "fence_host", _with_dead_host, _fence),
    ("give up vms", "give_up_vms", _with_host_back, _give_up),
)
"""Name, kind, the world before, what begins it."""
