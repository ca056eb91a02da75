# SPDX-License-Identifier: Apache-2.0
"""Network cards with virtual functions on the PCI bus, as the kernel shows them.

Layout: Linux Documentation/ABI/testing/sysfs-bus-pci (sriov_numvfs, virtfnN, physfn) and sysfs-class-net (flags).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import binding, pci, reading

_NETWORK = 0x02
"""Base class of network controllers: Ethernet is 0200, InfiniBand 0207."""
_INFINIBAND = 0x0207
_UP = 0x1
"""IFF_UP"""


@dataclass(frozen=True)
class FoundNic:
    """A card that can have virtual functions."""

    address: str
    vendor: str
    device: str
    numa_node: int | None
    bridges: tuple[str, ...]
    interface: str | None
    functions: tuple[str, ...]
    """In the card's order."""


def is_nic(paths: Paths, address: str) -> bool:
    """Whether it is a card's own function, and the card can have virtual ones."""
    return _is_nic(f"{paths.pci_devices}/{address}")


def _is_nic(directory: str) -> bool:
    """Hundreds are asked, and hardly one can have virtual functions."""
    if not os.path.exists(f"{directory}/sriov_totalvfs"):  # noqa: PTH110 - as above
        return False
    is_network = (reading.number(f"{directory}/class") or 0) >> 16 == _NETWORK
    return is_network and bool(reading.number(f"{directory}/sriov_totalvfs"))


def has_mac(paths: Paths, card: str) -> bool:
    """Whether its functions have hardware addresses of six bytes: InfiniBand has others."""
    return (reading.number(paths.pci(card) / "class") or 0) >> 8 != _INFINIBAND


def nics(paths: Paths) -> tuple[FoundNic, ...]:
    """In PCI order."""
    below = str(paths.pci_devices)
    return tuple(_read(paths, address) for address in reading.names(below) if _is_nic(f"{below}/{address}"))


def _read(paths: Paths, address: str) -> FoundNic:
    one = pci.identity(str(paths.pci(address)))
    node = reading.number(paths.pci(address) / "numa_node")
    return FoundNic(
        address=address,
        vendor="0000" if one is None else one.vendor,
        device="0000" if one is None else one.device,
        numa_node=node if node is not None and node >= 0 else None,
        bridges=pci.bridges_above(paths, address),
        interface=interface_of(paths, address),
        functions=pci.virtual_functions(paths, address),
    )


def interface_of(paths: Paths, address: str) -> str | None:
    """Its own network interface; None: its driver makes none, or none has it."""
    return next(iter(reading.names(paths.pci(address) / "net")), None)


def is_up(paths: Paths, address: str) -> bool:
    """Whether the host has an interface of the function up."""
    interface = interface_of(paths, address)
    flags = None if interface is None else reading.number(paths.pci(address) / "net" / interface / "flags")
    return bool((flags or 0) & _UP)


def why_held(paths: Paths, function: str) -> str | None:
    """Why a function that is no VM's of ours can be none; None: it may be given."""
    if binding.is_passed_through(paths, function):
        return "vfio-pci has it, and we did not give it there"
    if is_up(paths, function):
        return f"the host has its interface {interface_of(paths, function)} up"
    others = pci.iommu_shared_with(paths, function, (function,))
    if others is None:
        return "it is in no IOMMU group: the host's IOMMU is off"
    alone = [other for other in others if other != function]
    return f"it shares its IOMMU group with {', '.join(alone)}" if alone else None
