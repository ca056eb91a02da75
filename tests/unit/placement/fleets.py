# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import catalogue_geometry
from orchestrator.core.geometry.cut import IllegalLayout
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rules import Wants, needs_of
from orchestrator.core.placement.rules.rule import Need
from orchestrator.core.placement.views import GpuView, HostView, Request
from orchestrator.core.vms.isolation import Isolation

HGX = tuple(p.module_ids for p in shipped().partitions_of("HGX H100"))


def gpus(model: str, count: int, *kinds: str) -> tuple[GpuView, ...]:
    cuts = catalogue_geometry(shipped(), model, frozenset(kinds))
    return tuple(GpuView(gpu_id=f"g{i}", geometry=cuts, numa=i * 2 // count, module_id=i + 1) for i in range(count))


def host(
    name: str,
    views: tuple[GpuView, ...],
    *,
    vcpus: int = 64,
    memory_mib: int = 1 << 20,
    disk_gib: int = 10_000,
    fabric: bool = False,
    cordoned: bool = False,
) -> HostView:
    return HostView(
        host_id=name, name=name, free_vcpus=vcpus, free_memory_mib=memory_mib, free_disk_gib=disk_gib, gpus=views,
        fabric_partitions=HGX if fabric else (), cordoned=cordoned,
        numa_free_vcpus=((0, vcpus // 2), (1, vcpus // 2)), numa_shared=((0, vcpus // 2), (1, vcpus // 2)),
    )  # fmt: skip


OWN = {"isolation", "scheduler", "apart_from_vms"}


def ask(vm_id: str, profile: str, **more: Any) -> Request:
    """``isolation``, ``scheduler`` and ``apart_from_vms`` become needs."""
    tenant = more.pop("tenant", "t")
    own = {name: more.pop(name) for name in OWN & more.keys()}
    needs = (*more.pop("needs", ()), *own_needs(profile, tenant, **own))
    bare = Request(vm_id=vm_id, profile=profile, vcpus=1, memory_mib=1024, tenant=tenant, migratable=True, needs=needs)
    return replace(bare, **more)


def own_needs(
    profile: str,
    tenant: str,
    *,
    isolation: Isolation | None = None,
    scheduler: Scheduler | None = None,
    apart_from_vms: tuple[str, ...] = (),
) -> tuple[Need, ...]:
    """Of a VM, beside what it needs of its host."""
    return needs_of(
        Wants(profile=profile, tenant=tenant, isolation=isolation, scheduler=scheduler, apart_from=apart_from_vms)
    )


def settle(engine: PlacementEngine, request: Request) -> bool:
    plan = engine.plan(request)
    if plan is not None:
        engine.take(request, plan)
    return plan is not None


def broken_rules(engine: PlacementEngine) -> list[str]:
    """Everything that must never be: overlap, illegal start, over-commit, index out of step."""
    found = [problem for gpu in engine.fleet.gpus for problem in _on_gpu(engine, gpu)]
    found += [problem for one in engine.fleet.hosts for problem in _on_host(one)]
    if engine.fleet.active != sum(bool(gpu.held) for gpu in engine.fleet.gpus):
        found.append("active GPUs miscounted")
    return found


def _on_gpu(engine: PlacementEngine, gpu: Gpu) -> Iterator[str]:
    where = f"{gpu.host.view.name}/{gpu.view.gpu_id}"
    slots = [slot for taken, _ in gpu.held for slot in taken.slots]
    if len(slots) != len(set(slots)):
        yield f"{where}: overlap"
    expected: tuple[int, object] = (-1, None)
    if gpu.held and not gpu.whole:
        try:
            expected = (gpu.cut, gpu.table.cuts[gpu.cut].classify(taken for taken, _ in gpu.held))
        except IllegalLayout as problem:
            yield f"{where}: {problem}"
    if gpu.table.states[gpu.state] != expected:
        yield f"{where}: state {gpu.table.states[gpu.state]} is not {expected}"
    states = engine.fleet.members[gpu.table.number]
    indexed = [
        (state, host_class)
        for state, classes in enumerate(states)
        for host_class, members in classes.items()
        if gpu.number in members
    ]
    wanted = gpu.held and not gpu.whole and gpu.usable and not gpu.host.view.cordoned
    if indexed != ([(gpu.state, gpu.bucket)] if wanted else []):
        yield f"{where}: indexed as {indexed}"


def _on_host(one: FleetHost) -> Iterator[str]:
    if one.busy != sum(1 << gpu.position for gpu in one.gpus if gpu.held or not gpu.usable):
        yield f"{one.view.name}: busy mask"
    if min(one.vcpus, one.memory_mib, one.disk_gib, *one.numa_vcpus.values()) < 0:
        yield f"{one.view.name}: over-committed"
