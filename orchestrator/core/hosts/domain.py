# SPDX-License-Identifier: Apache-2.0
"""What a VM's libvirt domain is, field by field: goes over the wire, and its host writes the XML of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.overlay import Port

BootPolicy = Literal["local", "ask-controller"]
"""After a reboot of its host a running VM is started again by the agent alone, or only when a controller says so."""
Firmware = Literal["bios", "uefi"]
"""What a guest boots by. UEFI comes without Secure Boot, and with variables of the VM's own."""


@dataclass(frozen=True, kw_only=True)
class DomainDescription:
    """Everything that differs between the domains of two VMs; the rest is the same for all (core/domain_xml)."""

    name: str
    """Of the domain: ``tenant.vm``."""
    tenant: str
    profile: str
    """Written into the metadata, for people who look at the host."""
    vcpus: int
    memory_mib: int
    volume: str
    """File name of its disk in the agent's volume directory."""
    seed: str
    """File name of its NoCloud seed in the agent's seed directory."""
    network: str
    """Name of a libvirt network that is ours: of the tenant (``tenant.network``) or of the site."""
    devices: tuple[Device, ...] = ()
    more_networks: tuple[str, ...] = ()
    """The same of its further network cards, in order."""
    data: tuple[str, ...] = ()
    """File names of its data volumes in the agent's directory of those, in order."""
    cpus: CpuPlace | None = None
    """None: it runs on any CPU, and its memory is where it happens to be."""
    firmware: Firmware = "bios"
    tpm: bool = False
    """It has a TPM 2.0 of its own: an swtpm of its host, whose state libvirt keeps until the definition is removed."""
    nic: str | None = None
    """PCI address of the virtual function of a network card that it has."""
    ports: tuple[Port, ...] = ()
    """On those of its networks that OVN carries: libvirt has none of that name."""

    @property
    def networks(self) -> tuple[str, ...]:
        """Of its network cards, in order."""
        return (self.network, *self.more_networks)

    @property
    def overlays(self) -> tuple[str, ...]:
        """Those of its networks that OVN carries."""
        return tuple(port.network for port in self.ports)


@dataclass(frozen=True, kw_only=True)
class MadeAs:
    """What a host's agent remembers of a VM that it has defined: enough to take it over into a database without it."""

    domain: DomainDescription
    image: str
    """File name of its disk's base image, ``<sha256>.<format>``; empty: not known."""
    disk_bytes: int
    boot_policy: BootPolicy
