# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import catalogue_geometry
from orchestrator.core.advice.alike import CapacityRow, OneOfEach
from orchestrator.core.geometry.cut import IllegalLayout
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.offerings.offering import PAGE_KIB, HugePageSize, Offering
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.rules import needs_of
from orchestrator.core.placement.rules.disk import amounts_of
from orchestrator.core.placement.rules.nics import functions_of
from orchestrator.core.placement.rules.nodes import ByNode, HasCpus, cpu_amounts, memory_amounts
from orchestrator.core.placement.rules.rule import Amounts, Fact, Need, Resource, find
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import GpuView, HostView, Request
from orchestrator.core.units import GIB
from orchestrator.core.vms.isolation import Isolation
from orchestrator.core.vms.vm import VmShape
from tests.bench.placement.moves.stays import STAYS

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
    half = ((0, vcpus // 2), (1, vcpus // 2))
    view = HostView(
        host_id=name, name=name, free_vcpus=vcpus, free_memory_mib=memory_mib, gpus=views,
        fabric_partitions=HGX if fabric else (), cordoned=cordoned,
    )  # fmt: skip
    return having(view, free_disk_gib=disk_gib, numa_free_vcpus=half, numa_shared=half)


def having(
    view: HostView,
    *,
    free_disk_gib: int | None = None,
    numa_free_vcpus: ByNode | None = None,
    numa_free_memory: ByNode | None = None,
    free_pages: tuple[tuple[int, int, int], ...] | None = None,
    free_nics: tuple[tuple[str, int], ...] | None = None,
    **cpus: Any,
) -> HostView:
    """With other things that VMs spend; what is not named stays. ``free_pages``: (KiB of a page, NUMA node, MiB).
    ``cpus``: ``numa_shared``, ``core_threads`` and ``pinnable``, None: the host's agent does not tell its CPUs."""
    by_size: dict[int, dict[int, int]] = {}
    for size, node, mib in free_pages or ():
        by_size.setdefault(size, {})[node] = mib
    memory = dict(numa_free_memory or ())
    told: dict[str, tuple[object, Amounts]] = {
        "disk": (free_disk_gib, amounts_of(free_disk_gib or 0)),
        "cpus": (numa_free_vcpus, cpu_amounts(dict(numa_free_vcpus or ()))),
        "memory": (numa_free_memory, memory_amounts(memory, 0)),
        "pages": (free_pages, tuple(one for kib, mib in by_size.items() for one in memory_amounts(mib, kib))),
        "nic": (free_nics, functions_of(dict(free_nics or ()))),
    }
    changed = {kind: amounts for kind, (given, amounts) in told.items() if given is not None}
    kept = tuple(pair for pair in view.free if _kind(pair[0]) not in changed)
    return replace(
        view, free=(*kept, *(pair for amounts in changed.values() for pair in amounts)), facts=_facts(view, **cpus)
    )


def _kind(resource: Resource) -> str:
    return "pages" if resource.kind == "memory" and resource.of else resource.kind


def _facts(view: HostView, **cpus: Any) -> tuple[Fact, ...]:
    names = {"numa_shared": "shared", "core_threads": "threads", "pinnable": "pinnable"}
    others = tuple(fact for fact in view.facts if not isinstance(fact, HasCpus))
    if "pinnable" in cpus and cpus["pinnable"] is None:
        return others
    before = find(view.facts, HasCpus)
    if before is None and not cpus:
        return others
    return (*others, replace(before or HasCpus(()), **{names[name]: value for name, value in cpus.items()}))


OFFERED = {"isolation", "scheduler", "apart_from_vms", "host", "gpu", "disk_gib", "nic", "pinned", "huge_mib",
           "page_kib", "numa_strict"}  # fmt: skip


def ask(vm_id: str, profile: str, **more: Any) -> Request:
    """Names in ``OFFERED`` become needs; of ``pinned`` vCPUs and huge pages ``vcpus``, ``memory_mib`` count none."""
    tenant, vcpus, memory_mib = more.pop("tenant", "t"), more.pop("vcpus", 1), more.pop("memory_mib", 1024)
    stays = () if more.pop("migratable", True) else (STAYS,)
    own = {name: more.pop(name) for name in OFFERED & more.keys()}
    vcpus, memory_mib = 0 if own.get("pinned") else vcpus, 0 if own.get("huge_mib") else memory_mib
    needs = own_needs(profile, tenant, vcpus=vcpus, memory_mib=memory_mib, **own)
    bare = Request(
        vm_id=vm_id, profile=profile, vcpus=vcpus, memory_mib=memory_mib, tenant=tenant,
        needs=(*more.pop("needs", ()), *needs, *stays),
    )  # fmt: skip
    return replace(bare, **more)


def own_needs(
    profile: str,
    tenant: str,
    *,
    vcpus: int = 1,
    memory_mib: int = 1024,
    isolation: Isolation | None = None,
    scheduler: Scheduler | None = None,
    apart_from_vms: tuple[str, ...] = (),
    host: str | None = None,
    gpu: str | None = None,
    disk_gib: int = 0,
    nic: bool = False,
    pinned: int = 0,
    huge_mib: int = 0,
    page_kib: int = 0,
    numa_strict: bool = False,
) -> tuple[Need, ...]:
    """Of a VM, beside what it needs of features, bridges and labels."""
    vm = VmShape(
        name="vm", tenant=tenant, profile=profile, image="", vcpus=vcpus + pinned, memory_mib=memory_mib + huge_mib,
        disk_bytes=disk_gib * GIB, network="", host=host, gpu=gpu, nic="rdma" if nic else None,
    )  # fmt: skip
    pages: dict[int, HugePageSize] = {kib: name for name, kib in PAGE_KIB.items()}
    whole = profile.startswith("gpu:")
    offering = Offering(
        name="asked", kind="passthrough" if whole else "time_sliced", vgpu_type=None if whole else profile,
        gpu_count=int(profile.removeprefix("gpu:")) if whole else 0, scheduler=scheduler,
        cpu="pinned" if pinned else "shared", numa="strict" if numa_strict else "any", hugepages=pages.get(page_kib),
    )  # fmt: skip
    return needs_of(Wanted(vm_id="vm", vm=vm, offering=offering, isolation=isolation, apart_from_vms=apart_from_vms))


def capacity(requests: Iterable[Request], hosts: Sequence[HostView]) -> tuple[CapacityRow, ...]:
    """A row per request, each on the fleet as it is, the others not placed."""
    each = OneOfEach.among(hosts)
    return tuple(CapacityRow(request.profile, each.room(request)) for request in requests)


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
    if min(one.vcpus, one.memory_mib, *one.free.values()) < 0:
        yield f"{one.view.name}: over-committed"
