# SPDX-License-Identifier: Apache-2.0
"""Fleets of the suites, from the catalogue's tables."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import catalogue_geometry
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.views import GpuView, HostView

ENDLESS = 1 << 30


def geometry(model: str, *kinds: str) -> Geometry:
    return catalogue_geometry(shipped(), model, frozenset(kinds))


def single_gpu_hosts(count: int, cuts: Geometry) -> Iterator[HostView]:
    for i in range(count):
        yield host(i, cuts, gpus=1, vcpus=ENDLESS, memory_mib=ENDLESS)


def eight_gpu_hosts(count: int, cuts: Geometry, *, vcpus: int = ENDLESS, fabric: bool = True) -> Iterator[HostView]:
    for i in range(count):
        yield host(i, cuts, gpus=8, vcpus=vcpus, memory_mib=vcpus * 8192, fabric=fabric)


def host(number: int, cuts: Geometry, *, gpus: int, vcpus: int, memory_mib: int, fabric: bool = False) -> HostView:
    partitions = tuple(p.module_ids for p in shipped().partitions_of("HGX H100")) if fabric else ()
    views = tuple(GpuView(gpu_id=str(i), geometry=cuts, numa=i * 2 // gpus, module_id=i + 1) for i in range(gpus))
    return HostView(
        host_id=f"h{number}", name=f"h{number}", free_vcpus=vcpus, free_memory_mib=memory_mib,
        gpus=views, fabric_partitions=partitions,
    )  # fmt: skip
