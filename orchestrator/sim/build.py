# SPDX-License-Identifier: Apache-2.0
"""The machines that a fleet file describes, as they leave the rack."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from orchestrator.catalogue.catalogue import Catalogue
from orchestrator.catalogue.geometries import KINDS
from orchestrator.sim.fleet import SimulatedFleet, new_machine, nics_of, nodes_of
from orchestrator.sim.hardware import GpuKind, gpu_kind
from orchestrator.simulate_placement.fleet_file import HostGroup, host_names, partitions_of, read_groups

DOMAIN = ".test"
"""Reserved for what does not exist (RFC 2606)."""


def fleet_of(fleet_file: Path, catalogue: Catalogue) -> SimulatedFleet:
    """A machine for each host of the file; its address is the host's name below :data:`DOMAIN`.

    :raises InvalidInput: ``fleet.invalid``
    """
    fleet = SimulatedFleet()
    for number, group in enumerate(read_groups(fleet_file, catalogue)):
        kinds = [_kind(group, catalogue)] * group.gpus_per_host
        partitions = {one.partition_id: one.module_ids for one in partitions_of(group, catalogue)}
        for name in host_names(group, number):
            machine = new_machine(
                _index(name), kinds, vcpus=group.vcpus, memory_mib=int(group.memory_gib * 1024), partitions=partitions
            )
            machine.nodes = nodes_of(group.numa_nodes, machine.vcpus, machine.memory_mib, group.pages)
            machine.features = tuple(feature for feature in machine.features if feature not in group.lacks)
            machine.kernel.nics = nics_of(machine, group.nics_per_host)
            machine.driver_version = group.driver or machine.driver_version
            machine.refuses_drivers = frozenset(group.refuses_drivers)
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
    types = tuple(one for one in kind.types if one.name not in backed and "time_sliced" in allowed)
    return replace(kind, types=types, profiles=(), backed=())


def _index(name: str) -> int:
    """The same for the same name, whatever else the fleet file says."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
