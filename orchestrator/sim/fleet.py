# SPDX-License-Identifier: Apache-2.0
"""The machines that a fleet file describes, as they leave the rack; all of them, by address."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.catalogue.geometries import KINDS
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.hosts.cpus import HugePages, NumaNode
from orchestrator.core.hosts.host import Host
from orchestrator.core.units import GIB
from orchestrator.sim.hardware import GpuKind, gpu_kind
from orchestrator.sim.kernel import Fabric, Kernel, SimulatedGpu, SimulatedNic
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.pools import SimulatedPool
from orchestrator.simulate_placement.fleet_file import HostGroup, host_names, partitions_of, read_groups


@dataclass
class SimulatedFleet:
    """``machines`` by the address that hosts are added with."""

    machines: dict[str, SimulatedMachine] = field(default_factory=dict)

    def add(self, address: str, machine: SimulatedMachine) -> None:
        self.machines[address] = machine

    def machine(self, address: str) -> SimulatedMachine:
        """:raises InvalidInput: ``host.address_unknown``"""
        if address not in self.machines:
            raise InvalidInput(
                "host.address_unknown",
                f"there is no machine at {address[:60]!a}",
                hint=f"this server simulates {len(self.machines)}, one of them at {next(iter(self.machines))}",
            )
        return self.machines[address]

    def of(self, host: Host) -> SimulatedMachine:
        return self.machine(host.address)


_MODULES = (7, 5, 6, 8, 1, 3, 4, 2)
"""Module ids of a baseboard's GPUs in the order of their addresses, as seen on a host."""


def new_machine(
    index: int, kinds: Iterable[GpuKind], *, vcpus: int = 64, memory_mib: int = 262144, storage_bytes: int = 4096 * GIB,
    partitions: Mapping[int, tuple[int, ...]] | None = None,
) -> SimulatedMachine:  # fmt: skip
    """A host as it leaves the rack: no agent, virtual functions off. ``partitions``: of its baseboard, id → modules;
    None: it has none."""
    gpus = [SimulatedGpu(address=f"0000:{0x41 + 2 * number:02x}:00.0", kind=kind) for number, kind in enumerate(kinds)]
    for gpu, module in zip(gpus, _MODULES if partitions else (), strict=False):
        gpu.module_id = module
    module_ids = {gpu.module_id for gpu in gpus}
    joined = {number: modules for number, modules in (partitions or {}).items() if module_ids.issuperset(modules)}
    fabric = Fabric(joined) if partitions else None
    return SimulatedMachine(
        index=index, kernel=Kernel(gpus, fabric=fabric), vcpus=vcpus, memory_mib=memory_mib,
        storage_bytes=storage_bytes, nodes=nodes_of(1, vcpus, memory_mib),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def nodes_of(count: int, vcpus: int, memory_mib: int, pages: tuple[tuple[int, int], ...] = ()) -> tuple[NumaNode, ...]:
    """Cores of two threads, numbered as Linux does: the second threads after all first ones. ``pages``: (KiB of a huge
    page, how many of them), divided among the nodes."""
    half = vcpus // 2
    cores = [(first, first + half) for first in range(half)] + ([(vcpus - 1,)] if vcpus % 2 else [])
    bounds = [number * len(cores) // count for number in range(count + 1)]
    return tuple(
        NumaNode(
            id=number,
            cores=tuple(cores[bounds[number] : bounds[number + 1]]),
            memory_mib=memory_mib // count,
            hugepages=tuple(
                HugePages(size_kib=size, total=total // count, free=total // count, mounted=True)
                for size, total in pages
            ),
        )
        for number in range(count)
    )


_NIC_FUNCTIONS = 7


def nics_of(machine: SimulatedMachine, count: int) -> list[SimulatedNic]:
    """The first cards are each under one switch with a GPU, the others under none; of NUMA nodes as GPUs are."""
    gpus = machine.kernel.gpus
    return [
        SimulatedNic(
            address=f"0000:{0xA1 + 2 * number:02x}:00.0",
            functions=_NIC_FUNCTIONS,
            numa_node=number * len(machine.nodes) // count,
            bridges=(gpus[number].root_port,) if number < len(gpus) else (),
        )
        for number in range(count)
    ]


def enrolled(machine: SimulatedMachine, site: str) -> SimulatedMachine:
    """The same machine as ``host add`` leaves it."""
    machine.ledger.site = site
    machine.ledger.epoch = 1
    machine.ledger.cards = {gpu.address: machine.uuid_of(gpu) for gpu in machine.kernel.gpus}
    machine.ledger.managed = frozenset(machine.ledger.cards)
    machine.networks["default"] = "192.168.122.0/24"
    for gpu in machine.kernel.gpus:
        machine.kernel.switch_functions(gpu, on=bool(gpu.kind.total_vfs))
    return machine


DOMAIN = ".test"
"""Reserved for what does not exist (RFC 2606)."""


def fleet_of(fleet_file: Path, catalogue: Catalogue) -> SimulatedFleet:
    """A machine for each host of the file; its address is the host's name below :data:`DOMAIN`.

    :raises InvalidInput: ``fleet.invalid``
    """
    fleet, pools, backups = SimulatedFleet(), dict[str, SimulatedPool](), dict[str, int]()
    for number, group in enumerate(read_groups(fleet_file, catalogue)):
        kinds = [_kind(group, catalogue)] * group.gpus_per_host
        partitions = {partition.partition_id: partition.module_ids for partition in partitions_of(group, catalogue)}
        for name in host_names(group, number):
            machine = new_machine(
                _index(name), kinds, vcpus=group.vcpus, memory_mib=int(group.memory_gib * 1024), partitions=partitions
            )
            machine.nodes = nodes_of(group.numa_nodes, machine.vcpus, machine.memory_mib, group.pages)
            machine.features = tuple(feature for feature in machine.features if feature not in group.lacks)
            machine.kernel.nics = nics_of(machine, group.nics_per_host)
            machine.driver_version = group.driver or machine.driver_version
            machine.refuses_drivers = frozenset(group.refuses_drivers)
            machine.readings = group.readings
            machine.signals = tuple(GpuSignal(name=name) for name in group.signals)
            machine.pools = {name: pools.setdefault(name, SimulatedPool(name)) for name in group.pools}
            machine.backups = backups
            machine.sticky_drivers = frozenset(group.sticky_drivers)
            fleet.add(f"{name}{DOMAIN}", machine)
    return fleet


def _kind(group: HostGroup, catalogue: Catalogue) -> GpuKind:
    """The model with the vGPU types that the group allows. Where GPUs may be in MIG mode they may be out of it too: a
    driver that lists time-sliced types makes them, and no mode is the operator's to forbid."""
    kind = replace(gpu_kind(catalogue, group.gpu_model), mediated=group.mediated)
    allowed = {KINDS[mode] for mode in group.modes_allowed}
    if "mig" in allowed:
        return kind
    backed = {name for name, *_ in kind.backed}
    types = tuple(vgpu_type for vgpu_type in kind.types if vgpu_type.name not in backed and "time_sliced" in allowed)
    return replace(kind, types=types, profiles=(), backed=())


def _index(name: str) -> int:
    """The same for the same name, whatever else the fleet file says."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
