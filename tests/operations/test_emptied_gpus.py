# SPDX-License-Identifier: Apache-2.0
"""One GPU is emptied: its VMs move to other hosts, those beside it stay, and its host serves on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.maintenance.maintenance import Maintenance
from orchestrator.services.maintenance.maintenances import WantedDrain
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.fakes.recount import miscounted
from tests.operations.moves import MIGRATABLE, OTHER, plane_of_hosts, where
from tests.operations.test_driver_upgrades import go_on

BOTH = {"ill": (L40S_HOST, "running"), "beside": (L40S_HOST, "running"), "stopped": (L40S_HOST, "stopped")}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """``ill`` and ``stopped`` on one GPU, ``beside`` on the other."""
    made = plane_of_hosts(tmp_path)
    first, second = (gpu.address for gpu in made.machine(L40S_HOST).gpus)
    for name, gpu in (("ill", first), ("stopped", first), ("beside", second)):
        vm = create_vm(name, profile=MIGRATABLE.name, start=name != "stopped")
        made.services.vms.create(replace(vm, host=L40S_HOST, gpu=gpu))
        made.engine.drain()
    assert where(made) == BOTH
    yield made
    with made.store.read() as tx:
        assert list(miscounted(tx)) == []
    made.store.close()


def ill(plane: ControlPlane) -> str:
    return plane.machine(L40S_HOST).gpus[0].address


def emptied(plane: ControlPlane, gpu: str | None = None) -> Maintenance:
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(), gpu or ill(plane))
    return go_on(plane)


def state(plane: ControlPlane) -> str:
    return plane.services.gpu_health.get(L40S_HOST, ill(plane)).health.state


def test_the_vms_of_one_gpu_move_as_they_are_and_those_beside_it_stay_on_a_host_that_serves_on(
    plane: ControlPlane,
) -> None:
    drain = emptied(plane)
    assert (drain.state, drain.host(L40S_HOST).phase) == ("done", "done")
    assert where(plane) == BOTH | {"ill": (OTHER, "running"), "stopped": (OTHER, "stopped")}
    with plane.store.read() as tx:
        assert {operation.kind for operation in tx.operations.list()} >= {"move_running_vm", "move_vm"}
    assert state(plane) == "quarantined", "until it is returned"
    plane.services.vms.create(replace(create_vm("new", profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()
    assert plane.services.vms.get("default", "new").devices[0].gpu != ill(plane)
    assert not plane.services.hosts.get(L40S_HOST).host.cordoned


def test_it_is_closed_from_the_first_moment_and_only_its_vms_are_told(plane: ControlPlane) -> None:
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(), ill(plane))
    assert state(plane) == "quarantined"
    planned = plane.services.maintenances.planned()
    told = {vm.spec.name: planned.of(vm) for vm in plane.services.vms.list(None)}
    assert told["ill"] is not None
    assert told["ill"].moves
    assert told["beside"] is None
    with pytest.raises(Conflict) as refused:
        plane.services.maintenances.choose("default", "beside", None)
    assert refused.value.code == "maintenance.none"
    with pytest.raises(Conflict) as busy:
        plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    assert busy.value.code == "host.busy"


def test_vms_beside_it_are_started_and_its_host_is_uncordoned_meanwhile(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    plane.services.vms.stop("default", "beside")
    plane.engine.drain()
    assert emptied(plane).host(L40S_HOST).phase == "emptying"
    plane.services.hosts.cordon(L40S_HOST, None)
    plane.services.vms.start("default", "beside")
    plane.engine.drain()
    assert where(plane)["beside"] == (L40S_HOST, "running")
    plane.services.hosts.uncordon(L40S_HOST)
    assert not plane.services.hosts.get(L40S_HOST).host.cordoned


def test_a_vm_without_a_place_elsewhere_runs_on_and_is_named_until_it_is_cancelled(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    waits = emptied(plane)
    assert waits.host(L40S_HOST).phase == "emptying"
    assert sorted(waits.host(L40S_HOST).stays.values())[0].startswith("VM default/ill stays: ")
    assert where(plane) == BOTH
    plane.services.maintenances.cancel(waits.id)
    assert go_on(plane).host(L40S_HOST).phase == "kept"
    assert where(plane) == BOTH
    assert state(plane) == "quarantined"
    plane.services.gpu_health.give_back(L40S_HOST, ill(plane), "it was a mistake")
    assert state(plane) == "watch"


def test_what_a_person_said_of_the_gpu_and_of_the_host_stays(plane: ControlPlane) -> None:
    plane.services.gpu_health.quarantine(L40S_HOST, ill(plane), "fan 3 is loud")
    plane.services.hosts.cordon(L40S_HOST, None)
    assert emptied(plane).state == "done"
    assert plane.services.gpu_health.get(L40S_HOST, ill(plane)).health.cause == "fan 3 is loud"
    assert plane.services.hosts.get(L40S_HOST).host.cordoned


def test_a_gpu_that_is_not_ours_is_refused_and_nothing_is_declared(plane: ControlPlane) -> None:
    with pytest.raises(NotFound) as unknown:
        emptied(plane, "0000:ff:00.0")
    assert unknown.value.code == "gpu.not_ours"
    assert plane.services.maintenances.list() == ()
