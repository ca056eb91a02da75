# SPDX-License-Identifier: Apache-2.0
"""What a VM has reserved. Claims are made with the VM, in one transaction, and outlive its running."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeviceClaim:
    """Slots of one GPU. The database holds a row per slot, unique per (host, GPU, slot)."""

    gpu: str
    """PCI address."""
    cut: str
    """How the GPU is divided; all claims on a GPU share it (``time_sliced:2048``, ``mig`` …)."""
    slots: tuple[int, ...]
    function: str | None
    """PCI address of the virtual function that is this device's alone; None: made on the GPU itself."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Everything one VM holds on its host."""

    vm: str
    host: str
    devices: tuple[DeviceClaim, ...]
    """At least one."""
    vcpus: int
    """That share CPUs with other VMs."""
    memory_mib: int
    """Of ordinary pages."""
    disk_bytes: int
    cpus: tuple[int, ...] = ()
    """That it has alone, whole cores. The database holds a row per CPU, unique per (host, CPU)."""
    nic: str | None = None
    """PCI address of the function of a network card that is its alone: unique per (host, function)."""


@dataclass(frozen=True, kw_only=True)
class HostCapacity:
    """The most that all claims on a host together may hold."""

    vcpus: int
    memory_mib: int
    disk_bytes: int
    pinnable: str = ""
    """CPUs that are kept for VMs that have theirs alone; a claim that was planned with others is lost."""
    node_memory: tuple[tuple[int, int], ...] = ()
    """(NUMA node, MiB) that all VMs may have there together which take memory of the VM's kind from it: huge pages of
    its size, or ordinary ones where it insists on the node. Of nodes that it takes some of."""
