# SPDX-License-Identifier: Apache-2.0
"""Where things are on a host. ``root`` is ``/``, or a directory tree that looks like one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from orchestrator.agent.relay import DEFAULT_SOCKET
from orchestrator.core.hosts.pool import DIRECTORY
from orchestrator.core.vms.backup import DIRECTORY as BACKUPS

CONFIG_FILE = Path("/etc/vgpuctl-agent/config.json")
SOCKET_FILE = Path(DEFAULT_SOCKET)
SOCKET_GROUP = "vgpuctl-agent"
"""Group of the unprivileged account that the controller logs in as; its members may talk to the agent."""


@dataclass(frozen=True)
class Paths:
    """Directories of the kernel below ``root`` and ours below ``storage``; each is put together once, as an observation
    asks for some of them hundreds of times."""

    root: Path
    storage: Path

    @cached_property
    def pci_devices(self) -> Path:
        return self.root / "sys/bus/pci/devices"

    @cached_property
    def pci_drivers(self) -> Path:
        return self.root / "sys/bus/pci/drivers"

    @cached_property
    def iommu_groups(self) -> Path:
        return self.root / "sys/kernel/iommu_groups"

    @cached_property
    def proc(self) -> Path:
        return self.root / "proc"

    @cached_property
    def kernel_log(self) -> Path:
        return self.root / "dev/kmsg"

    @cached_property
    def etc(self) -> Path:
        return self.root / "etc"

    @cached_property
    def sriov_manage(self) -> Path:
        return self.root / "usr/lib/nvidia/sriov-manage"

    @cached_property
    def images(self) -> Path:
        return self.storage / "images"

    @cached_property
    def volumes(self) -> Path:
        return self.storage / "volumes"

    @cached_property
    def seeds(self) -> Path:
        return self.storage / "seeds"

    @cached_property
    def data(self) -> Path:
        return self.storage / "data"

    @cached_property
    def nvram(self) -> Path:
        """UEFI variables of VMs."""
        return self.storage / "nvram"

    @cached_property
    def pools(self) -> Path:
        """Directories of several hosts are mounted below it."""
        return self.storage / DIRECTORY

    @cached_property
    def backups(self) -> Path:
        """Targets of backups are mounted below it."""
        return self.storage / BACKUPS

    @cached_property
    def reports(self) -> Path:
        """What the driver's own script has collected, for people."""
        return self.storage / "reports"

    @cached_property
    def ledger(self) -> Path:
        return self.storage / "ledger"

    def pci(self, address: str) -> Path:
        """The sysfs directory of one PCI function."""
        return self.pci_devices / address
