# SPDX-License-Identifier: Apache-2.0
"""What drivers of hosts in memory say of GPUs and of the vGPUs that run there, for moves."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.gpu.vgpu_metadata import RunningVgpu
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.sim.vgpu_metadata import metadata


def with_metadata(snapshot: HostSnapshot) -> HostSnapshot:
    """The same, of a host whose driver compares."""
    return replace(snapshot, gpus=tuple(_gpu(snapshot, gpu) for gpu in snapshot.gpus))


def _gpu(snapshot: HostSnapshot, gpu: GpuSnapshot) -> GpuSnapshot:
    said = metadata(snapshot.driver_version or "", f"{gpu.pci_device} {gpu.pci_subsystem_device}")
    its = {name for parent in gpu.parents for name in (parent.address, *(mdev.uuid for mdev in parent.mdevs))}
    running = [domain.uuid for domain in snapshot.domains if domain.active and not its.isdisjoint(domain.devices)]
    return replace(gpu, metadata=said, open_vgpus=tuple(RunningVgpu(vm=vm, metadata=said) for vm in running))
