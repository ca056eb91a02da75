# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.geometry.build import MigRow, TypeRow, build_geometry
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.rules.disk import NeedsDisk, amounts_of
from orchestrator.core.placement.rules.nodes import HasCpus, OfNodes
from orchestrator.core.placement.views import GpuView, HostView, Occupied, Request

A100_MIG = (
    MigRow(name="1g.5gb", starts=(0, 1, 2, 3, 4, 5, 6), size=1, total_slots=8, max_instances=7),
    MigRow(name="2g.10gb", starts=(0, 2, 4), size=2, total_slots=8, max_instances=3),
    MigRow(name="3g.20gb", starts=(0, 4), size=4, total_slots=8, max_instances=2),
    MigRow(name="7g.40gb", starts=(0,), size=8, total_slots=8, max_instances=1),
)
_L4_SIZES = {4: (6, (0, 8, 12, 20)), 6: (4, (0, 6, 12, 18)), 8: (3, (0, 16)), 12: (2, (0, 12)), 24: (1, (0,))}
L4_TYPES = tuple(
    TypeRow(
        name=f"NVIDIA L4-{size}Q", framebuffer_mib=size * 1024, max_per_gpu=most,
        placement_ids=ids, placement_size=size, placement_region=24,
    )
    for size, (most, ids) in _L4_SIZES.items()
)  # fmt: skip
A100 = build_geometry("A100 PCIe 40GB", 40960, mig=A100_MIG)
L4 = build_geometry("L4", 24576, types=L4_TYPES, kinds=frozenset({"time_sliced"}))
L4_MIXED = build_geometry("L4", 24576, types=L4_TYPES, kinds=frozenset({"mixed"}))
H100 = build_geometry("H100 SXM5 80GB", 81920)
HGX = (
    (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 4), (5, 6, 7, 8), (1, 3), (2, 4), (5, 7), (6, 8),
    (1,), (2,), (3,), (4,), (5,), (6,), (7,), (8,),
)  # fmt: skip


def vm(name: str, profile: str, start: int, size: int = 1, *, tenant: str = "acme") -> Occupied:
    return Occupied(
        vm_id=name, profile=profile, start=start, size=size, tenant=tenant,
        vcpus=4, memory_mib=8192, spent=amounts_of(20),
    )  # fmt: skip


def gpu(slot: str, geometry: Geometry, cut: str | None = None, *held: Occupied) -> GpuView:
    return GpuView(gpu_id=f"0000:{slot}:00.0", geometry=geometry, cut=cut, occupied=held)


def host(name: str, *gpus: GpuView, free_vcpus: int = 64, free_memory_mib: int = 262144) -> HostView:
    vms = frozenset(item.vm_id for one in gpus for item in one.occupied)
    return HostView(
        host_id=name, name=name, free_vcpus=free_vcpus, free_memory_mib=free_memory_mib, free=amounts_of(1000),
        gpus=gpus, vms=vms,
    )  # fmt: skip


def asks(profile: str, *, memory_mib: int = 16384, count: int = 1) -> Request:
    return Request(
        vm_id="new", profile=profile, vcpus=8, memory_mib=memory_mib, tenant="acme", needs=(NeedsDisk(50),), count=count
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    request: Request
    hosts: tuple[HostView, ...]


def _hgx(*busy: int) -> HostView:
    gpus = [
        replace(
            gpu(f"{module:x}b", H100, *(("whole", vm(f"train-{module}", "gpu:1", 0)) if module in busy else ())),
            module_id=module, numa=(module - 1) // 4,
        )
        for module in range(1, 9)
    ]  # fmt: skip
    return replace(host("hgx1", *gpus), fabric_partitions=HGX)


def _two_3g() -> GpuView:
    held = (vm("left", "3g.20gb", 0, 4), vm("right", "3g.20gb", 4, 4, tenant="birch"))
    return gpu("41", A100, "mig", *held)


CASES = {
    "fits": Case(
        request=asks("2g.10gb"),
        hosts=(host("kvm1", gpu("41", A100, "mig", vm("a", "3g.20gb", 0, 4)), gpu("42", A100)),),
    ),
    "mig_fragmentation": Case(
        request=asks("1g.5gb"), hosts=(host("kvm1", _two_3g()), host("kvm2", _two_3g()))
    ),
    "mig_fragmentation_with_moves": Case(
        request=asks("3g.20gb"),
        hosts=(
            host("kvm1", gpu("41", A100, "mig", vm("small", "1g.5gb", 2),
                             vm("tiny", "1g.5gb", 5))),
            host("kvm2", gpu("41", A100, "mig", vm("mid", "2g.10gb", 0, 2, tenant="birch"),
                             vm("late", "2g.10gb", 4, 2, tenant="birch"))),
            host("kvm3", gpu("41", A100, "mig", vm("wide", "3g.20gb", 0, 4), vm("thin", "1g.5gb", 4))),
        ),
    ),
    "one_size_per_gpu": Case(
        request=asks("NVIDIA L4-8Q"),
        hosts=(
            host("kvm1", gpu("41", L4, "time_sliced:4096", vm("a", "NVIDIA L4-4Q", 0))),
            host("kvm2", gpu("41", L4, "time_sliced:4096", vm("b", "NVIDIA L4-4Q", 0), vm("c", "NVIDIA L4-4Q", 1))),
        ),
    ),
    "mixed_size_ids": Case(
        request=asks("NVIDIA L4-12Q"),
        hosts=(
            host("kvm1", gpu("41", L4_MIXED, "mixed", vm("a", "NVIDIA L4-4Q", 8, 4), vm("b", "NVIDIA L4-6Q", 18, 6))),
        ),
    ),
    "six_free_no_partition_of_four": Case(request=asks("gpu:4"), hosts=(_hgx(1, 5),)),
    "numa_split": Case(
        request=replace(asks("NVIDIA L4-24Q"), needs=(NeedsDisk(50), OfNodes(8, 16384, strict=True))),
        hosts=(
            replace(
                host("kvm1", replace(gpu("41", L4, "time_sliced:24576", vm("a", "NVIDIA L4-24Q", 0)), numa=0),
                     replace(gpu("c1", L4), numa=1)),
                facts=(HasCpus(((0, 32), (1, 4))),),
            ),
        ),
    ),
    "memory": Case(
        request=asks("NVIDIA L4-4Q"),
        hosts=(
            host("kvm1", gpu("41", L4, "time_sliced:4096", vm("a", "NVIDIA L4-4Q", 0)),
                 free_memory_mib=10240),
            host("kvm2", gpu("41", L4, "time_sliced:4096", vm("b", "NVIDIA L4-4Q", 0)), free_memory_mib=12288),
        ),
    ),
    "quarantined_gpu": Case(
        request=asks("NVIDIA L4-4Q"),
        hosts=(
            host("kvm1", replace(gpu("41", L4), usable=False, reason_unusable="quarantined after Xid 79"),
                 gpu("42", L4, "time_sliced:24576", vm("a", "NVIDIA L4-24Q", 0, tenant="birch"))),
        ),
    ),
}  # fmt: skip
