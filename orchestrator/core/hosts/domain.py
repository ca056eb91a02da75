# SPDX-License-Identifier: Apache-2.0
"""What a VM's libvirt domain is, field by field: goes over the wire, and its host writes the XML of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.overlay import Port
from orchestrator.core.units import GIB, MIB, show_size

BootPolicy = Literal["local", "ask-controller"]
"""After a reboot of its host a running VM is started again by the agent alone, or only when a controller says so."""
Firmware = Literal["bios", "uefi"]
"""What a guest boots by. UEFI comes without Secure Boot, and with variables of the VM's own."""


MIN_BYTES_PER_S, MAX_BYTES_PER_S = MIB, 1024 * GIB
MIN_IOPS, MAX_IOPS = 10, 10_000_000
"""A guest whose disk has less does not boot in any time that somebody waits; more is no limit."""
BURST_S = 10
"""How long a disk may go as fast as its bursts say, after it was idle long enough."""


@dataclass(frozen=True, kw_only=True)
class DiskLimits:
    """What a disk may do in a second, reads and writes together; 0: as much as it can."""

    bytes_per_s: int = 0
    """In bytes."""
    iops: int = 0
    """Requests."""
    bytes_per_s_max: int = 0
    """In bursts of at most 10 s; 0: no more than the limit."""
    iops_max: int = 0
    """The same of requests."""

    @classmethod
    def of_offering(cls, value_of: Callable[[str], int | None]) -> DiskLimits | None:
        """``value_of``: an offering's field; None: it says nothing of disks."""
        limits = cls(**{member.name: value_of(f"disk_{member.name}") or 0 for member in fields(cls)})
        return None if limits == cls() else limits

    @property
    def words(self) -> str:
        """For people."""
        numbers = (
            ("", self.bytes_per_s, self.iops),
            ("in bursts ", self.bytes_per_s_max, self.iops_max),
        )
        parts = (
            (f"{before}{show_size(size)}/s" if size else "", f"{before}{iops} requests/s" if iops else "")
            for before, size, iops in numbers
        )
        return ", ".join(filter(None, (part for both in parts for part in both)))

    @property
    def problem(self) -> tuple[str, str] | None:
        """Which number no disk can have, and why; None: all is well."""
        bounds = (
            ("bytes_per_s", MIN_BYTES_PER_S, MAX_BYTES_PER_S, "bytes"),
            ("iops", MIN_IOPS, MAX_IOPS, "requests"),
        )
        for name, at_least, at_most, what in bounds:
            limit, burst = getattr(self, name), getattr(self, f"{name}_max")
            for named, number in ((name, limit), (f"{name}_max", burst)):
                if number and not at_least <= number <= at_most:
                    return named, f"a disk is limited to {at_least} to {at_most} {what} a second"
            if burst and not 0 < limit <= burst:
                return f"{name}_max", f"bursts need a limit of {what} a second that is not above them"
        return None


def lower(*given: DiskLimits | None) -> DiskLimits | None:
    """Of each number the lowest, and bursts that none of them forbids; None: there is no limit."""
    parts: dict[str, int] = {}
    for name in ("bytes_per_s", "iops"):
        limits = [(number, getattr(each, f"{name}_max")) for each in given if each and (number := getattr(each, name))]
        lowest = min((number for number, _ in limits), default=0)
        most = min((burst or number for number, burst in limits), default=0)
        parts |= {name: lowest, f"{name}_max": most if most > lowest else 0}
    return DiskLimits(**parts) if any(parts.values()) else None


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
    """Name of a libvirt network that is ours: of the tenant (``tenant.network``) or of the site; empty: it has no
    network card."""
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
    disk_limits: DiskLimits | None = None
    """Of its disk, and of each data volume."""
    data_limits: tuple[DiskLimits, ...] = ()
    """Of each data volume beside these, in order: the lower one holds. Empty: none has any."""

    @property
    def networks(self) -> tuple[str, ...]:
        """Of its network cards, in order."""
        return (self.network, *self.more_networks) if self.network else ()

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
