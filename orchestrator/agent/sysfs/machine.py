# SPDX-License-Identifier: Apache-2.0
"""What the machine says of itself: identity, operating system, processors, memory."""

from __future__ import annotations

import os
from dataclasses import dataclass

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    machine_id: str
    boot_id: str
    hostname: str
    kernel: str
    os_name: str
    vcpus: int
    memory_mib: int
    iommu: bool


def boot_id(paths: Paths) -> str:
    """Differs after every boot."""
    return reading.text(paths.proc / "sys/kernel/random/boot_id") or ""


def driver_epoch(paths: Paths) -> str:
    """Differs after every boot, and after every swap of the driver that our role made: both leave nothing of what the
    driver held. Empty: cannot tell."""
    swapped = reading.text(paths.root / "run/vgpuctl-driver")
    booted = boot_id(paths)
    return f"{booted} {swapped}" if booted and swapped else booted


def _os_name(paths: Paths) -> str:
    for line in (reading.text(paths.etc / "os-release") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip('"')
    return "unknown"


def _memory_mib(paths: Paths) -> int:
    for line in (reading.text(paths.proc / "meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0


def read(paths: Paths) -> MachineFacts:
    return MachineFacts(
        machine_id=reading.text(paths.etc / "machine-id") or "",
        boot_id=boot_id(paths),
        hostname=reading.text(paths.proc / "sys/kernel/hostname") or "",
        kernel=reading.text(paths.proc / "sys/kernel/osrelease") or "",
        os_name=_os_name(paths),
        vcpus=os.cpu_count() or 1,
        memory_mib=_memory_mib(paths),
        iommu=bool(reading.names(paths.iommu_groups)),
    )
