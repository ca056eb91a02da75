# SPDX-License-Identifier: Apache-2.0
"""Data volumes in pools that VMs on several hosts read: no reader has the volume's lease, each has that of its own name
for the file, and none writes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.vms.volume import file_of
from orchestrator.services.messages import MoveVm
from orchestrator.sim.pools import SimulatedPool
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.recount import miscounted
from tests.operations import moves, pools
from tests.operations.moves import MIGRATABLE, OTHER
from tests.operations.test_moving import run
from tests.operations.test_pools import refused


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM on each of two hosts reads the volume."""
    made = control_plane(tmp_path)
    pools.with_reader(made)
    wanted = replace(create_vm("worker", profile=MIGRATABLE.name), host=OTHER, pool="fast", volumes=("data:ro",))
    assert run(made, made.services.vms.create(wanted).operation) == "done"
    yield made
    made.store.close()


def pool(plane: ControlPlane) -> SimulatedPool:
    return plane.machine(OTHER).pools["fast"]


def data(plane: ControlPlane, vm: str) -> str:
    (volume,) = plane.services.vms.get("default", vm).spec.volumes
    return file_of(volume)


def test_vms_on_several_hosts_read_it_and_each_has_the_lease_of_its_own_name(plane: ControlPlane) -> None:
    info = plane.services.volumes.get("default", "data")
    assert (info.read_by, info.vm) == (("train", "worker"), None)
    leases = pool(plane).leases
    assert info.volume.file not in leases
    for vm, host in (("train", L40S_HOST), ("worker", OTHER)):
        assert data(plane, vm).endswith(f".{info.volume.id}.{info.volume.pool}.ro.raw")
        assert leases[data(plane, vm)] == plane.machine(host).machine_id
    with plane.store.read() as tx:
        assert not list(miscounted(tx))
        claimed = tx.pools.get("fast").claimed_bytes
        vms = (plane.services.vms.get("default", name) for name in info.read_by)
        assert claimed == pools.SIZE + sum(vm.spec.disk_bytes for vm in vms), "the volume counts once"


def test_what_hosts_read_in_a_pool_is_not_written_grown_put_back_or_deleted(plane: ControlPlane) -> None:
    volumes, snapshots = plane.services.volumes, plane.services.volume_snapshots
    for act in (
        lambda: volumes.attach("default", "data", "train"),
        lambda: volumes.resize("default", "data", 2 * pools.SIZE),
        lambda: volumes.delete("default", "data"),
        lambda: snapshots.create("default", "data", "before"),
        lambda: plane.services.vms.create(replace(create_vm("third"), volumes=("data",))),
    ):
        error = refused("volume.attached", Conflict, act)
        assert "attached to VMs train, worker" in error.message
    for name in ("train", "worker"):
        assert run(plane, volumes.detach("default", "data", name).operation) == "done"
    assert set(pool(plane).files) & {data.file for data in plane.services.volumes.all()}
    assert not [file for file in (*pool(plane).files, *pool(plane).leases) if ".ro." in file]
    assert run(plane, volumes.attach("default", "data", "worker").operation) == "done"
    refused("volume.attached", Conflict, lambda: pools.read(plane))


@pytest.mark.parametrize("way", ["live", "cold", "stopped"])
def test_a_reader_moves_with_the_lease_of_its_name_and_the_other_reads_on(plane: ControlPlane, way: str) -> None:
    for name in ("worker",) if way != "stopped" else ("worker", "train"):
        plane.services.vms.stop("default", name)
    plane.engine.drain()
    operation = plane.services.moving.move(MoveVm(name="train", tenant="default", cold=way == "cold")).operation
    assert run(plane, operation) == "done"
    assert plane.services.vms.get("default", "train").host == OTHER
    assert {pool(plane).leases[data(plane, name)] for name in ("train", "worker")} == {plane.machine(OTHER).machine_id}
    assert plane.services.volumes.get("default", "data").read_by == ("train", "worker")


def test_a_host_that_has_not_mounted_the_pool_gets_no_reader(plane: ControlPlane) -> None:
    plane.machine(OTHER).pools.clear()
    plane.observer.observe(OTHER)
    error = refused("gpu.no_capacity", NoCapacity, lambda: moves.move(plane))
    assert "host.no_pool" in {reason.code for reason in error.reasons}
