# SPDX-License-Identifier: Apache-2.0
"""A host that has all it needs."""

from __future__ import annotations

from typing import Final

from orchestrator.core.hosts.readiness import HostGpuFact, HostOvnFact, HostReadinessFacts
from orchestrator.core.units import GIB

READY: Final = HostReadinessFacts(
    os="Debian GNU/Linux 13 (trixie)", os_id="debian", kernel="6.12.48+deb13-amd64", architecture="x86_64",
    command_line="BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt", amd=False, iommu_groups=40,
    modules=("kvm", "nvidia", "nvidia_vgpu_vfio", "vfio_iommu_type1", "vfio_pci"), kvm=True, systemd=True,
    libvirt_listens=True, libvirt="11.3.0", qemu="10.0.2", python=(3, 13), python_libvirt=True, driver="580.65.05",
    headers=True, secure_boot=False, confinement="AppArmor", features=("uefi", "tpm"),
    gpus=(HostGpuFact(address="0000:41:00.0", driver="nvidia", iommu_group=True, takes_types=True),),
    storage_free_bytes=500 * GIB, nvswitches=False, switches_lack=(), fabric_manager=None, dcgm=None,
    huge_pages_2m=0, huge_pages_1g=0,
    ovn=HostOvnFact(version=None, remote=None, connected=False), large_pages_mounted=False,
)  # fmt: skip
