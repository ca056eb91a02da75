# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs on an NVSwitch: which may be given out, and the partition that a VM's GPUs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.catalogue.gpu_tables import GpuTables
from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.fabric import FabricPlace, FabricSnapshot
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.store.records import ClaimLost


def reason_not_joined(gpu: GpuSnapshot, tables: GpuTables, fabric: FabricSnapshot | None) -> str | None:
    """Why the GPU can be in no partition now; None: it can, or needs none."""
    if fabric is None:
        return "it hangs on an NVSwitch, and its host tells of no fabric manager" if tables.partitions else None
    if not fabric.partitions and not tables.on_nvswitch:
        return None
    if fabric.problem is not None:
        return fabric.problem
    if gpu.module_id is None:
        return "its module id is not known"
    foreign = (
        partition.id
        for partition in fabric.partitions
        if partition.active and partition.owner is None and gpu.module_id in partition.modules
    )
    active = next(foreign, None)
    return None if active is None else f"fabric partition {active} is active, and we did not activate it"


def joined(devices: tuple[Device, ...], facts: HostFacts) -> tuple[Device, ...]:
    """The same with their partition, if the host has some and they are whole GPUs.

    :raises ClaimLost: they are none; the host was observed anew meanwhile
    """
    fabric = facts.fabric
    if fabric is None or not fabric.partitions or not devices or not all(device.is_whole_gpu for device in devices):
        return devices
    modules = _modules(facts, [device.gpu for device in devices])
    partition = None if modules is None else fabric.made_of(modules)
    if modules is None or partition is None:
        raise ClaimLost(f"{', '.join(device.gpu for device in devices)} are no fabric partition")
    place = FabricPlace(partition.id, modules, tuple(device.gpu for device in devices))
    return (*devices[:-1], replace(devices[-1], fabric=place))


def _modules(facts: HostFacts, gpus: Sequence[str]) -> tuple[int, ...] | None:
    ids = {gpu.address: gpu.module_id for gpu in facts.gpus}
    modules = tuple(module for gpu in gpus if (module := ids.get(gpu)) is not None)
    return modules if len(modules) == len(gpus) else None
