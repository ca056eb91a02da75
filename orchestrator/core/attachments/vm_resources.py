# SPDX-License-Identifier: Apache-2.0
"""What on a host belongs to one VM."""

from __future__ import annotations

from orchestrator.core.attachments import observed_on
from orchestrator.core.hosts.snapshot import NOT_TOLD, HostSnapshot


def things_of(snapshot: HostSnapshot, vm_id: str) -> tuple[str, ...]:
    """Everything on the host that belongs to the VM, for people. What could not be asked is told as well: it may be
    there."""
    files = [
        *(f"volume {file.name}" for file in snapshot.volumes if file.owner == vm_id),
        *(f"seed {file.name}" for file in snapshot.seeds if file.owner == vm_id),
    ]
    domains = [f"domain {domain.name}" for domain in snapshot.domains if vm_id in {domain.uuid, domain.owner}]
    there = (one for gpu in snapshot.gpus for one in observed_on(gpu))
    vgpus = [f"vGPU {one.device.name}" for one in there if one.owner == vm_id]
    fabric = () if snapshot.fabric is None else snapshot.fabric.partitions
    joined = [f"fabric partition {one.id}" for one in fabric if one.owner == vm_id]
    nics = [f"network function {one.address}" for nic in snapshot.nics for one in nic.functions if one.owner == vm_id]
    unread = ["what libvirt has: it did not answer"] if snapshot.libvirt_version == NOT_TOLD else []
    return (*unread, *domains, *vgpus, *nics, *joined, *files)
