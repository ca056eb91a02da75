# SPDX-License-Identifier: Apache-2.0
"""Network cards of hosts whose virtual functions VMs may have, near their GPUs: docs/decisions/networks.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.gpu.pci import is_pci_address

NicKind = Literal["rdma"]
"""What a VM can ask for. ``rdma``: a virtual function of a card that is near its GPU."""

MAX_NICS: Final = 64
"""More than any host has."""
_PREFIX: Final = "52:54:01"
"""Locally administered, beside those of virtio cards."""


@dataclass(frozen=True, kw_only=True)
class NicFunction:
    """A virtual function of a host's card."""

    address: str
    owner: str | None = None
    """VM id from the agent's ledger; None: no VM of ours has it."""
    held: str | None = None
    """Why it can be no VM's, for operators: somebody else has it, or it cannot be kept apart. None: it may be given."""


@dataclass(frozen=True, kw_only=True)
class HostNic:
    """A network card that can have virtual functions (PCI class 02)."""

    address: str
    vendor: str
    device: str
    """Four lower-case hex digits each."""
    numa_node: int | None
    bridges: tuple[str, ...]
    """PCI addresses of the ports above it, from the root port on."""
    interface: str | None
    """Its own one on the host; None: its driver makes none."""
    functions: tuple[NicFunction, ...]
    """Those that are switched on, in the card's order."""


@dataclass(frozen=True, kw_only=True)
class NicPlace:
    """The virtual function that a VM has. Drawn and stored before the first effect."""

    card: str
    """PCI address of the card."""
    function: str
    """PCI address."""
    functions: int
    """How many the card had then: after a boot as many are switched on again."""
    mac: str
    """Set on the card where its driver lets somebody."""
    under_switch: bool = False
    """It is under one PCIe switch with a GPU of the VM; else on its NUMA node."""


def nic_mac(vm_id: str) -> str:
    """The same for all of the VM's life."""
    digest = sha256(f"nic {vm_id}".encode()).hexdigest()
    return f"{_PREFIX}:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"


def common_ports(one: Sequence[str], other: Sequence[str]) -> int:
    """Ports above both: with any in common, what they say to each other need not pass the processor."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def near(bridges: Sequence[str], numa_node: int | None, nics: Iterable[HostNic]) -> tuple[tuple[str, ...], bool]:
    """Addresses of the cards that are near a GPU, nearest first, and whether they are under one switch with it.

    Where none of them is, those of its NUMA node are near."""
    nearby = tuple(nics)
    under = [nic for nic in nearby if common_ports(bridges, nic.bridges)]
    if under:
        by_switch = sorted(under, key=lambda one: (-common_ports(bridges, one.bridges), one.address))
        return tuple(nic.address for nic in by_switch), True
    return tuple(nic.address for nic in nearby if nic.numa_node == numa_node), False


def parse_nics(text: str) -> tuple[str, ...]:
    """``0000:3b:00.0,0000:d8:00.0`` in order, each once. Empty text: none.

    :raises InvalidInput: ``nic.invalid``"""
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else ()
    if len(addresses) > MAX_NICS or not all(is_pci_address(address) for address in addresses):
        raise InvalidInput(
            "nic.invalid", f"{text[:60]!a} names no network cards", hint="PCI addresses: 0000:3b:00.0,0000:d8:00.0"
        )
    return addresses


def check_given(nics: Collection[HostNic], addresses: Iterable[str], host: str) -> None:
    """Whether functions of these cards may be given to VMs of that host.

    :raises Conflict: ``nic.none_told``; :raises InvalidInput: ``nic.unknown``"""
    wanted, present = tuple(addresses), sorted(nic.address for nic in nics)
    if not wanted:
        return
    if not present:
        raise Conflict(
            "nic.none_told", f"host {host} tells of no network card that can have virtual functions",
            hint=f"'vgpuctl host upgrade-agent {host}' brings an agent that tells; else it has none",
        )  # fmt: skip
    unknown = [address for address in wanted if address not in present]
    if unknown:
        raise InvalidInput(
            "nic.unknown", f"host {host} has no network card {', '.join(unknown)} with virtual functions",
            hint=f"it has {', '.join(present)}",
        )  # fmt: skip
