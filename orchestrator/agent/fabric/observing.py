# SPDX-License-Identifier: Apache-2.0
"""The fabric as the snapshot shows it. What cannot be asked is a problem of the fabric, not of the observation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.agent.fabric.fmpm import FabricManager, Waits
from orchestrator.agent.fabric.members import (
    BoardGpu,
    ListedPartition,
    PartitionMember,
    PartitionMembers,
    remember,
    remembered,
)
from orchestrator.agent.fabric.partitions import PREFIX, wrong_version
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.gpu.fabric import FabricSnapshot, ObservedPartition
from orchestrator.core.gpu.health import NOT_JOINED
from orchestrator.core.hosts.snapshot import GpuSnapshot


def observe_fabric(
    paths: Paths, ledger: Ledger, manager: FabricManager, gpus: Sequence[GpuSnapshot]
) -> FabricSnapshot | None:
    """None: no GPU is on a baseboard, or nothing of a fabric manager is there.

    The module id of a card is 0 (nvml.h), or 1 (a T4 with R595); on a baseboard each GPU has its own."""
    modules = {gpu.module_id for gpu in gpus}
    if not any(modules) or (len(modules) == 1 and None not in modules):
        return None
    version = None
    try:
        if not manager.there():
            return None
        version = manager.version()
        found = manager.partitions()
    except Waits:
        return FabricSnapshot(version=version, problem="the fabric manager is not ready yet")
    except VgpuctlError as error:
        return FabricSnapshot(version=version, problem=error.message)
    members = _members(gpus, {})
    remember(ledger, members, found)
    members = _members(gpus, remembered(ledger))
    observed = (_observed(partition, members, ledger) for partition in found)
    # Of nothing that is known nothing can be said.
    partitions = tuple(partition for partition in observed if partition.modules)
    unknown = {member for each in found for member in each.members if members.module_of(member) is None}
    return FabricSnapshot(
        version=version,
        partitions=partitions,
        problem=wrong_version(paths, version) or (_unknown(unknown) if unknown else None),
    )


def without_waiting(gpus: Iterable[GpuSnapshot], fabric: FabricSnapshot | None) -> tuple[GpuSnapshot, ...]:
    """The same; that it has not joined its fabric is no fault of one that joins with its partition, or is in MIG mode
    and needs none."""
    partitions = () if fabric is None else fabric.partitions
    active = {module for partition in partitions if partition.active for module in partition.modules}
    return tuple(
        replace(gpu, signals=tuple(signal for signal in gpu.signals if signal.name != NOT_JOINED))
        if gpu.mig_enabled or (partitions and gpu.module_id not in active)
        else gpu
        for gpu in gpus
    )


def _members(gpus: Sequence[GpuSnapshot], known: Mapping[int, int]) -> PartitionMembers:
    on_board = [gpu for gpu in gpus if gpu.module_id != 0]
    board = [BoardGpu(address=gpu.address, uuid=gpu.uuid, module=gpu.module_id) for gpu in on_board]
    return PartitionMembers(board, [gpu.pci_device for gpu in on_board], known)


def _observed(partition: ListedPartition, members: PartitionMembers, ledger: Ledger) -> ObservedPartition:
    """With those of its members that are known."""
    owner = ledger.owner(f"{PREFIX}{partition.id}")
    modules = tuple(module for member in partition.members if (module := members.module_of(member)) is not None)
    return ObservedPartition(
        id=partition.id, modules=modules, active=partition.active, owner=None if owner is None else owner.vm
    )


def _unknown(members: Collection[PartitionMember]) -> str:
    lost = sorted(member.address or member.uuid for member in members if member.address or member.uuid)
    if lost:
        return f"the fabric manager has {', '.join(lost)}, of which the NVIDIA driver tells no module id"
    named = ", ".join(str(number) for number in sorted(member.physical for member in members))
    return f"the fabric manager does not tell which GPUs its members {named} are: give them back to the NVIDIA driver"
