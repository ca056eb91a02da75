# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs on the PCI bus and their virtual functions. Works whatever driver is bound to them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.gpu.pci import is_pci_address

NVIDIA = "10de"
_GPU_CLASSES = ("0300", "0302")
"""VGA controller and 3D controller; an NVSwitch is a bridge (0680) and an audio function 0403."""
_BRIDGE = 0x0604
"""PCI to PCI."""
_WITHOUT_DMA: Final = frozenset({None, "pci-stub", "pcieport"})
"""None, and those that leave DMA alone (``driver_managed_dma`` in linux drivers/pci/pci-stub.c, pcie/portdrv.c)."""
_4, _2 = "[0-9a-f]{4}", "[0-9a-f]{2}"
_IDENTITY: Final = re.compile(rf"pci:v0000({_4})d0000({_4})sv0000({_4})sd0000({_4})bc({_2})sc({_2})i{_2}")
"""linux drivers/pci/pci-sysfs.c, modalias_show: what six other files tell, and as they do from the kernel's memory. The
card's ``config`` would ask the card, ``uevent`` may wait for a driver that is bound to it meanwhile."""


@dataclass(frozen=True)
class PciIdentity:
    """Of a function, each as four lower-case hex digits."""

    vendor: str
    device: str
    subsystem_vendor: str
    subsystem_device: str
    pci_class: str
    """Base class and subclass."""


@dataclass(frozen=True)
class PciGpu:
    """A physical GPU as the kernel lists it."""

    address: str
    vendor: str
    device: str
    subsystem_vendor: str
    subsystem_device: str
    numa_node: int | None
    driver: str | None
    total_vfs: int
    enabled_vfs: int
    virtual_functions: tuple[str, ...]
    iommu_shared_with: tuple[str, ...] | None
    """Others in its IOMMU group; None: it has none."""
    bridges: tuple[str, ...] = ()
    """The ports above it, from the root port on."""


def identity(directory: str) -> PciIdentity | None:
    """Of the function that the directory is of; None: it is gone."""
    match = _IDENTITY.fullmatch((reading.text(f"{directory}/modalias") or "").lower())
    if match is None:
        return None
    vendor, device, subsystem_vendor, subsystem_device, base, sub = match.groups()
    return PciIdentity(vendor, device, subsystem_vendor, subsystem_device, base + sub)


def _is_gpu(one: PciIdentity) -> bool:
    return one.vendor == NVIDIA and one.pci_class in _GPU_CLASSES


def _directory(paths: Paths, address: str) -> str:
    """Plain text: at every observation hundreds of files below are read."""
    return f"{paths.pci_devices}/{address}"


def virtual_functions(paths: Paths, address: str) -> tuple[str, ...]:
    """Addresses of the GPU's enabled virtual functions, in the driver's order."""
    directory = _directory(paths, address)
    links = [name for name in reading.names(directory) if name.startswith("virtfn")]
    links.sort(key=lambda name: int(name[6:]) if name[6:].isdecimal() else -1)
    functions = [reading.link_name(f"{directory}/{name}") for name in links]
    return tuple(vf for vf in functions if vf is not None)


def bridges_above(paths: Paths, address: str) -> tuple[str, ...]:
    """The ports between the root complex and it, from the root port on: the directories that its own lies in, which the
    bus's link to it names (Documentation/filesystems/sysfs.rst)."""
    addresses = tuple(part for part in reading.link(_directory(paths, address)).split("/") if is_pci_address(part))
    return addresses[:-1]


def physical_gpu(paths: Paths, address: str) -> str:
    """The GPU that a PCI function belongs to: its physical function, or itself."""
    return reading.link_name(f"{_directory(paths, address)}/physfn") or address


def own_functions(paths: Paths, address: str) -> tuple[str, ...]:
    """The GPU and what else is in its slot (the audio function of a graphics board), virtual functions left out."""
    return _own_of(paths, address, reading.names(paths.pci_devices))


def _own_of(paths: Paths, address: str, all_functions: Iterable[str]) -> tuple[str, ...]:
    slot = address.rpartition(".")[0] + "."
    here = (name for name in all_functions if name.startswith(slot))
    return tuple(name for name in here if not reading.is_there(f"{_directory(paths, name)}/physfn"))


def iommu_shared_with(paths: Paths, address: str, vfs: Iterable[str]) -> tuple[str, ...] | None:
    """Members of its IOMMU group that are not the GPU's own, its virtual functions ``vfs`` included; None: it is in no
    group.

    Bridges do not count, nor what no driver has (host bridges, AMD's functions of class 1300) or one that uses no DMA:
    VFIO leaves them with the host (linux drivers/iommu/iommu.c, iommu_group_claim_dma_owner).
    """
    group = f"{_directory(paths, address)}/iommu_group"
    if reading.link_name(group) is None:
        return None
    members = reading.names(f"{group}/devices")
    own = {*_own_of(paths, address, members), *vfs}
    return tuple(name for name in members if name not in own and _is_used(paths, name))


def _is_used(paths: Paths, address: str) -> bool:
    directory = _directory(paths, address)
    return reading.link_name(f"{directory}/driver") not in _WITHOUT_DMA and not _is_bridge(paths, address)


def _is_bridge(paths: Paths, address: str) -> bool:
    return (reading.number(f"{_directory(paths, address)}/class") or 0) >> 8 == _BRIDGE


def _gpu(paths: Paths, address: str) -> PciGpu | None:
    """None: it is another function."""
    directory = _directory(paths, address)
    one = identity(directory)
    if one is None or not _is_gpu(one) or reading.is_there(f"{directory}/physfn"):
        return None
    enabled = reading.number(f"{directory}/sriov_numvfs") or 0
    vfs = virtual_functions(paths, address) if enabled else ()
    node = reading.number(f"{directory}/numa_node")
    return PciGpu(
        address=address,
        vendor=one.vendor,
        device=one.device,
        subsystem_vendor=one.subsystem_vendor,
        subsystem_device=one.subsystem_device,
        numa_node=node if node is not None and node >= 0 else None,
        driver=reading.link_name(f"{directory}/driver"),
        total_vfs=reading.number(f"{directory}/sriov_totalvfs") or 0,
        enabled_vfs=enabled,
        virtual_functions=vfs,
        iommu_shared_with=iommu_shared_with(paths, address, vfs),
        bridges=bridges_above(paths, address),
    )


def gpus(paths: Paths) -> tuple[PciGpu, ...]:
    """All physical NVIDIA GPUs in PCI order."""
    gpus_or_none = (_gpu(paths, address) for address in reading.names(paths.pci_devices))
    return tuple(gpu for gpu in gpus_or_none if gpu is not None)


def gpu_drivers(paths: Paths) -> dict[str, str | None]:
    """All physical NVIDIA GPUs and the driver that each has now: what little is read each few seconds."""
    drivers: dict[str, str | None] = {}
    for address in reading.names(paths.pci_devices):
        directory = _directory(paths, address)
        one = identity(directory)
        if one is not None and _is_gpu(one) and not reading.is_there(f"{directory}/physfn"):
            drivers[address] = reading.link_name(f"{directory}/driver")
    return drivers


_BARS: Final = 6
"""The lines of a function's own BARs; its ROM and those of its virtual functions come after them."""
_MEMORY, _64_BIT = 0x00000200, 0x00100000


def large_bar_bytes(paths: Paths, address: str) -> int:
    """Bytes of its 64-bit memory BARs; 0: it has none, or is not there."""
    lines = (reading.text(paths.pci(address) / "resource") or "").splitlines()[:_BARS]
    return sum(_size(line.split()) for line in lines)


def _size(words: list[str]) -> int:
    try:
        first, last, flags = (int(word, 16) for word in words)
    except ValueError:
        return 0
    wanted = _MEMORY | _64_BIT
    return last - first + 1 if flags & wanted == wanted and last > first else 0
