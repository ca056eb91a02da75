# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.offerings.offering import Offering
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

CPUS = NumaNode(id=0, cores=tuple((cpu,) for cpu in range(8)), memory_mib=32768)
MEMORY_ALONE = NumaNode(id=1, cores=(), memory_mib=131072)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


@pytest.mark.parametrize("nodes", [(CPUS,), (CPUS, MEMORY_ALONE), (replace(CPUS, memory_mib=None),)])
def test_who_insists_on_a_node_gets_the_only_one_with_cpus_where_no_gpu_tells_its_own(
    nodes: tuple[NumaNode, ...], plane: ControlPlane
) -> None:
    near = Offering(name="near", origin="site", kind="time_sliced", vgpu_type="GRID T4-2Q", numa="strict")
    with plane.store.begin() as tx:
        tx.offerings.put(near)
        snapshot = tx.hosts.snapshot(T4_HOST)
        assert snapshot is not None
        gpus = tuple(replace(gpu, numa_node=None) for gpu in snapshot.gpus)
        tx.hosts.put_snapshot(T4_HOST, replace(snapshot, gpus=gpus, nodes=nodes), int(plane.world.clock.now()))
    plane.services.vms.create(create_vm("a", profile="near"))
    cpus = plane.services.vms.get("default", "a").cpus
    assert cpus is not None
    assert (cpus.nodes, cpus.memory) == ((0,), "strict")
