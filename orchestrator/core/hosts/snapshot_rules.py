# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that an agent sent may hold: names that fit where they are kept, addresses that are some, no thing
twice. A host that says otherwise is believed nothing.

Bounds: what is above them no machine has, and what is worked out from it afterwards would take memory and time without
an end.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from orchestrator.core.errors import InvalidInput, Unknown, one_line
from orchestrator.core.gpu.device import Device, Mdev, VgpuParent
from orchestrator.core.gpu.fabric import FabricPlace, FabricSnapshot, GpuFabric, ObservedPartition
from orchestrator.core.gpu.health import MAX_SIGNALS, SEVERAL, GpuSignal
from orchestrator.core.gpu.licence import VgpuLicence
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.gpu.vgpu_metadata import MAX_METADATA, RunningVgpu
from orchestrator.core.gpu.vgpu_parameters import Scheduler, SchedulerState, VgpuParameters
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.cpus import MAX_CPU, CpuPlace, HugePages, NumaNode
from orchestrator.core.hosts.domain import MAX_BYTES_PER_S, MAX_IOPS, DiskLimits, DomainDescription, MadeAs
from orchestrator.core.hosts.nic import MAX_NICS, HostNic, NicFunction
from orchestrator.core.hosts.pool import MAX_NAME
from orchestrator.core.hosts.snapshot import (
    DomainSnapshot,
    FileSnapshot,
    GpuInstance,
    GpuSnapshot,
    HostCpu,
    HostSnapshot,
    HostVgpuType,
    PoolSnapshot,
    Unchanged,
)
from orchestrator.core.names import is_name, is_uuid
from orchestrator.core.overlay import Port

_PROBLEMS: Final = 100
_PROBLEM: Final = 1000


def checked(snapshot: HostSnapshot) -> HostSnapshot:
    """The same, with problems shortened to what people read.

    :raises Unknown: ``agent.answer_invalid``
    """
    check_bounds(snapshot)
    _check_once("GPU", [gpu.address for gpu in snapshot.gpus])
    _check_once("domain", [domain.uuid for domain in snapshot.domains])
    for what, files in _files(snapshot).items():
        _check_once(what, [file.name for file in files])
    for gpu in snapshot.gpus:
        _check_once("GPU instance", [str(instance.id) for instance in gpu.instances])
    parents = [parent for gpu in snapshot.gpus for parent in gpu.parents]
    _check_once("PCI function", [parent.address for parent in parents])
    _check_once("vGPU", [mdev.uuid for parent in parents for mdev in parent.mdevs])
    for address in [*(gpu.address for gpu in snapshot.gpus), *(parent.address for parent in parents)]:
        _check_address(address)
    _check_nodes(snapshot)
    _check_nics(snapshot)
    _check_pools(snapshot.pools)
    gpus = tuple(replace(gpu, problems=_shortened(gpu.problems)) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus, problems=_shortened(snapshot.problems), fabric=_checked_fabric(snapshot.fabric))


def checked_unchanged(unchanged: Unchanged) -> Unchanged:
    """The same.

    :raises Unknown: ``agent.answer_invalid``
    """
    check_bounds(unchanged)
    return unchanged


def checked_domain(domain: DomainSnapshot) -> DomainSnapshot:
    """The same.

    :raises Unknown: ``agent.answer_invalid``
    """
    check_bounds(domain)
    return domain


def _check_nodes(snapshot: HostSnapshot) -> None:
    for node in snapshot.nodes:
        if any(pages.total * pages.size_kib > HOST_MIB * 1024 for pages in node.hugepages):
            raise _invalid("more huge pages than a host has memory for", f"NUMA node {node.id}")
    _check_once("NUMA node", [str(node.id) for node in snapshot.nodes])
    cpus = [cpu for node in snapshot.nodes for cpu in node.cpus]
    _check_once("CPU", [str(cpu) for cpu in cpus])
    if any(cpu > MAX_CPU for cpu in cpus) or not all(core for node in snapshot.nodes for core in node.cores):
        raise _invalid("CPUs that cannot be so", str(max(cpus, default=0)))


def _check_nics(snapshot: HostSnapshot) -> None:
    functions = [function.address for nic in snapshot.nics for function in nic.functions]
    _check_once("network card", [nic.address for nic in snapshot.nics])
    _check_once("function of a network card", functions)
    ports = [port for nic in snapshot.nics for port in nic.bridges]
    for address in (*(nic.address for nic in snapshot.nics), *functions, *ports):
        _check_address(address)


def _check_pools(pools: tuple[PoolSnapshot, ...]) -> None:
    _check_once("pool", [pool.name for pool in pools])
    for pool in pools:
        if not is_name(pool.name) or not (pool.pool_id is None or is_uuid(pool.pool_id)):
            raise _invalid("a pool that is none", ascii(pool.name[:NAME]))


def _checked_fabric(fabric: FabricSnapshot | None) -> FabricSnapshot | None:
    if fabric is None:
        return None
    _check_once("fabric partition", [str(partition.id) for partition in fabric.partitions])
    for partition in fabric.partitions:
        _check_once("GPU of a fabric partition", [str(module) for module in partition.modules])
    if not all(partition.modules for partition in fabric.partitions):
        raise _invalid("fabric partitions that cannot be so", str(len(fabric.partitions)))
    problem = None if fabric.problem is None else one_line(fabric.problem, _PROBLEM)
    return replace(fabric, problem=problem)


def _files(snapshot: HostSnapshot) -> dict[str, tuple[FileSnapshot, ...]]:
    return {
        "volume": snapshot.volumes, "seed": snapshot.seeds, "image": snapshot.images, "data volume": snapshot.data,
    }  # fmt: skip


def _check_address(address: str) -> None:
    try:
        canonical = parse_pci_address(address)
    except InvalidInput:
        canonical = None
    if canonical != address:
        raise _invalid("a PCI address that is none", ascii(address[:NAME]))


def _check_once(what: str, names: Iterable[str]) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise _invalid(f"the same {what} twice", ascii(name[:NAME]))
        seen.add(name)


def _shortened(problems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one_line(problem, _PROBLEM) for problem in problems[:_PROBLEMS])


def _invalid(what: str, details: str) -> Unknown:
    return Unknown(
        "agent.answer_invalid",
        f"the agent tells of {what}",
        hint="look at the host: is its agent what was installed there?",
        details=details,
    )


NAME: Final = 255
"""Characters of any text that has no bound of its own: as long as a file's name may be."""
_ID: Final = 64
"""Machine and boot ids have 32 and 36 characters."""
_ADDRESS: Final = 16
HOST_MIB: Final = 2**27
"""128 TiB of memory: what x86-64 addresses with four levels of page tables."""
_GPU_MIB: Final = 2**23
"""8 TiB; the largest GPUs have 288 GiB."""
_WATTS: Final = 2**12
"""Of one card; the largest take 1,400 W. What a host says of its GPUs counts in budgets that others' lie within."""
_FILE: Final = 2**50
"""1 PiB in bytes."""
_DISK: Final = 2**53 - 1
"""8 PiB in bytes: as large as numbers in JSON are exact."""
_EPOCH: Final = 2**31 - 2
"""The database's column holds one more, and somebody has to be able to raise it."""
_LAST_SECOND: Final = 253402300799
"""The year 9999 ends."""
_PID: Final = 2**22
"""Linux PID_MAX_LIMIT."""
_NUMBER: Final = 2**16 - 1
"""Of ids and counts that hardware keeps in 16 bits."""
_SMALL: Final = 1023
"""Of ids of parts of a GPU, and of NUMA nodes (MAX_NUMNODES)."""
_SLOTS: Final = 255
"""Memory slots of a GPU that is in MIG mode; real ones have 4 to 8."""
_THINGS: Final = 10_000
"""Domains, files, networks of a host."""
_FUNCTIONS: Final = 1024
"""Of one card; real ones have up to 256."""
_GPUS: Final = 128
_PORTS: Final = 32
"""Between a root port and a card."""
_BUSES: Final = 256
"""Of a PCI segment; behind each port is one."""
_PARTITIONS: Final = 64
"""FM_MAX_FABRIC_PARTITIONS"""
_VGPUS: Final = 1024
"""Of one type on one GPU; the most that NVIDIA lists are 48."""
_TYPES: Final = 512
"""Of one GPU; the most that NVIDIA lists are 72."""
_MAX_PROBLEMS: Final = 1_000_000
"""Problems are not refused but shortened."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """``most``: of a number its value, of text its characters, of a list its items. ``each``: the same of an item."""

    most: int
    each: int = NAME


BOUNDS: Final[Mapping[type, Mapping[str, Bound]]] = {
    HostSnapshot: {
        "machine_id": Bound(_ID), "boot_id": Bound(_ID), "vcpus": Bound(MAX_CPU + 1), "memory_mib": Bound(HOST_MIB),
        "storage_free_bytes": Bound(_DISK), "storage_total_bytes": Bound(_DISK), "gpus": Bound(_GPUS),
        "domains": Bound(_THINGS), "volumes": Bound(_THINGS), "seeds": Bound(_THINGS), "images": Bound(_THINGS),
        "networks": Bound(_THINGS), "problems": Bound(_MAX_PROBLEMS, _MAX_PROBLEMS), "epoch": Bound(_EPOCH),
        "protocol": Bound(_NUMBER), "data": Bound(_THINGS), "bridges": Bound(_THINGS), "nodes": Bound(_SMALL + 1),
        "nics": Bound(MAX_NICS), "features": Bound(_SMALL, _ID), "pools": Bound(_SMALL),
    },
    PoolSnapshot: {"name": Bound(MAX_NAME), "capacity_bytes": Bound(_DISK), "free_bytes": Bound(_DISK)},
    Unchanged: {"storage_free_bytes": Bound(_DISK)},
    HostCpu: {"features": Bound(_ID), "page_kib": Bound(2**24)},
    HostVgpuType: {
        "type_id": Bound(_NUMBER), "framebuffer_mib": Bound(_GPU_MIB), "max_instances": Bound(_VGPUS),
    },
    Mdev: {"placement_id": Bound(_SMALL)},
    GpuInstance: {
        "id": Bound(_SMALL), "start": Bound(_SLOTS), "size": Bound(_SLOTS), "compute": Bound(_SLOTS, _SMALL),
        "devices": Bound(_SLOTS), "capabilities": Bound(_SLOTS),
    },
    VgpuParent: {
        "creatable": Bound(_TYPES), "mdevs": Bound(_VGPUS), "gpu_instance": Bound(_SMALL),
        "placement_id": Bound(_SMALL),
    },
    GpuSnapshot: {
        "numa_node": Bound(_SMALL), "memory_mib": Bound(_GPU_MIB), "sriov_total_vfs": Bound(_NUMBER),
        "sriov_enabled_vfs": Bound(_NUMBER), "module_id": Bound(_SMALL), "types": Bound(_TYPES),
        "parents": Bound(_FUNCTIONS), "problems": Bound(_MAX_PROBLEMS, _MAX_PROBLEMS),
        "iommu_shared_with": Bound(_FUNCTIONS),
        "instances": Bound(_SLOTS), "mig_profiles": Bound(_SLOTS), "licences": Bound(_VGPUS),
        "bridges": Bound(_PORTS, _ADDRESS), "signals": Bound(2 * MAX_SIGNALS),
        "metadata": Bound(MAX_METADATA), "open_vgpus": Bound(_VGPUS), "power_min_watts": Bound(_WATTS),
        "power_default_watts": Bound(_WATTS), "power_max_watts": Bound(_WATTS), "power_limit_watts": Bound(_WATTS),
    },
    GpuFabric: {"clique": Bound(2**32 - 1)},
    RunningVgpu: {"metadata": Bound(MAX_METADATA)},
    GpuSignal: {"at": Bound(_LAST_SECOND), "pids": Bound(SEVERAL, _PID)},
    DomainSnapshot: {
        "devices": Bound(_FUNCTIONS), "addresses": Bound(_FUNCTIONS), "vcpus": Bound(MAX_CPU + 1),
        "memory_mib": Bound(HOST_MIB), "disk_bytes": Bound(_FILE), "affinity": Bound(MAX_CPU + 1, 6 * (MAX_CPU + 1)),
        "cut_off": Bound(_SMALL), "unsafe": Bound(_SMALL), "free_ports": Bound(_BUSES),
    },
    MadeAs: {"disk_bytes": Bound(_FILE)},
    DomainDescription: {
        "vcpus": Bound(MAX_CPU + 1), "memory_mib": Bound(HOST_MIB), "devices": Bound(_FUNCTIONS),
        "more_networks": Bound(_SMALL), "data": Bound(_THINGS), "ports": Bound(_SMALL), "data_limits": Bound(_THINGS),
    },
    DiskLimits: {
        "bytes_per_s": Bound(MAX_BYTES_PER_S), "bytes_per_s_max": Bound(MAX_BYTES_PER_S),
        "iops": Bound(MAX_IOPS), "iops_max": Bound(MAX_IOPS),
    },
    Port: {},
    Device: {"gi_start": Bound(_SLOTS), "placement_id": Bound(_SMALL)},
    Scheduler: {"time_slice_ms": Bound(1_000_000)},
    VgpuParameters: {},
    FabricPlace: {"partition": Bound(_NUMBER), "modules": Bound(_GPUS, _SMALL), "gpus": Bound(_GPUS)},
    CpuPlace: {
        "shared": Bound(MAX_CPU + 1, MAX_CPU), "pinned": Bound(MAX_CPU + 1, MAX_CPU), "threads": Bound(MAX_CPU + 1),
        "nodes": Bound(_SMALL + 1, _SMALL), "page_kib": Bound(2**24), "page_mib": Bound(_SMALL + 1, HOST_MIB),
    },
    FileSnapshot: {"size_bytes": Bound(_FILE), "length_bytes": Bound(_FILE)},
    FabricSnapshot: {"partitions": Bound(_PARTITIONS), "problem": Bound(_MAX_PROBLEMS)},
    ObservedPartition: {"id": Bound(_NUMBER), "modules": Bound(_GPUS, _SMALL)},
    NumaNode: {
        "id": Bound(_SMALL), "cores": Bound(MAX_CPU + 1, MAX_CPU), "memory_mib": Bound(HOST_MIB),
        "hugepages": Bound(_PORTS),
    },
    HugePages: {"size_kib": Bound(2**24), "total": Bound(2**31 - 1), "free": Bound(2**31 - 1)},
    HostNic: {"numa_node": Bound(_SMALL), "bridges": Bound(_PORTS, _ADDRESS), "functions": Bound(_FUNCTIONS)},
    NicFunction: {},
    SchedulerState: {"time_slice_us": Bound(1_000_000_000)},
    VgpuLicence: {"until": Bound(_LAST_SECOND)},
    Bridge: {
        "chassis": Bound(_SMALL), "vlans": Bound(_THINGS), "silent_tunnels": Bound(_SMALL),
        "waiting_ports": Bound(_SMALL), "slow_tunnels": Bound(_SMALL),
    },
}  # fmt: skip
"""By class and field, of everything that a snapshot is made of; a number or a list without a row has no bound, which
a test does not let pass."""

_Check = Callable[[str, Any], None]


def check_bounds(snapshot: Any) -> None:
    """Of all that hangs below one of :data:`BOUNDS`.

    :raises Unknown: ``agent.answer_invalid``
    """
    kind: Any = type(snapshot)
    for name, check in _checks(kind):
        check(name, getattr(snapshot, name))


@functools.cache
def _checks(kind: type) -> tuple[tuple[str, _Check], ...]:
    """Put together once: a snapshot has thousands of values."""
    hints = typing.get_type_hints(kind)
    made = ((name, _check_of(hints[name], BOUNDS[kind].get(name))) for name in hints)
    return tuple((name, check) for name, check in made if check is not None)


def _check_of(hint: Any, bound: Bound | None) -> _Check | None:
    """None: one of a few words, or yes or no."""
    something = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is tuple:
        if bound is None:
            raise TypeError(f"a list without a bound: {hint}")
        return functools.partial(_check_list, bound, _check_of(something[0], Bound(bound.each, bound.each)))
    if len(something) == 1 and type(None) in typing.get_args(hint):
        return _check_of(something[0], bound)
    if hint is int:
        if bound is None:
            raise TypeError("a number without a bound")
        return functools.partial(_check_number, bound.most)
    if hint is str:
        return functools.partial(_check_text, NAME if bound is None else bound.most)
    return _check_below if hint in BOUNDS else None


def _check_number(most: int, name: str, number: int | None) -> None:
    if number is not None and not 0 <= number <= most:
        raise _untrue(f"{name} of {_shown(number)}, where 0 to {most} can be")


def _check_text(most: int, name: str, text: str | None) -> None:
    if text is not None and len(text) > most:
        raise _untrue(f"{name} of {len(text)} characters, where {most} can be")


def _check_list(bound: Bound, check: _Check | None, name: str, items: tuple[Any, ...] | None) -> None:
    if items is None:
        return
    if len(items) > bound.most:
        raise _untrue(f"{name} of {len(items)} items, where {bound.most} can be")
    if check is not None:
        for item in items:
            check(name, item)


def _check_below(_name: str, value: Any) -> None:
    if value is not None:
        check_bounds(value)


def _shown(number: int) -> str:
    return str(number) if abs(number) < 2**64 else "more than 64 bits"


def _untrue(what: str) -> Unknown:
    return Unknown(
        "agent.answer_invalid",
        f"the agent tells of {what}",
        hint="look at the host: is its agent what was installed there?",
    )
