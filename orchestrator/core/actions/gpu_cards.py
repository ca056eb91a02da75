# SPDX-License-Identifier: Apache-2.0
"""Which card is at which PCI address. An address names a place: after maintenance, or when a kernel numbers the bus
anew, another card may be there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.pci import split_pci_address
from orchestrator.core.hosts.snapshot import GpuSnapshot


@dataclass(frozen=True, kw_only=True)
class GpuCard:
    """A card and where it is. The UUID tells cards apart (nvml.h, ``nvmlDeviceGetUUID``: immutable); GPUs of one board
    share its serial number, which is for people."""

    address: str
    """PCI address."""
    uuid: str
    serial: str | None = None

    @property
    def words(self) -> str:
        return self.uuid if self.serial is None else f"{self.uuid} (serial {self.serial})"


@dataclass(frozen=True, kw_only=True)
class AcceptGpus(HostAction):
    """Say which cards are ours and where they are now. What is known of one goes with it to its new address; a GPU that
    is not named, and whose place no card took, stays as it is."""

    since = 8
    no_inverse = "it says what is so"
    cards: tuple[GpuCard, ...]


def cards_of(gpus: Iterable[GpuSnapshot]) -> tuple[GpuCard, ...]:
    """Those whose driver says which they are."""
    return tuple(GpuCard(address=gpu.address, uuid=gpu.uuid, serial=gpu.serial) for gpu in gpus if gpu.uuid)


def found_mig_modes(gpus: Iterable[GpuSnapshot]) -> dict[str, bool]:
    """GPU → the MIG mode that it had before we changed it, of those of which it is told."""
    return {gpu.address: gpu.mig_found for gpu in gpus if gpu.mig_found is not None}


def moves(accepted: Iterable[GpuCard], seen: Sequence[GpuCard]) -> dict[str, str]:
    """Old address → new one, of cards that are at another address than where they were accepted."""
    now = {card.uuid: card.address for card in seen}
    return {card.address: now[card.uuid] for card in accepted if now.get(card.uuid, card.address) != card.address}


def strangers(accepted: Iterable[GpuCard], seen: Sequence[GpuCard]) -> dict[str, tuple[GpuCard, GpuCard]]:
    """Address → the card that was accepted there and is seen nowhere, and the one that is there now."""
    now, known = {card.address: card for card in seen}, {card.uuid for card in seen}
    return {
        card.address: (card, now[card.address]) for card in accepted if card.uuid not in known and card.address in now
    }


def moved_device(device: Device, where: Mapping[str, str]) -> Device:
    """The same one after its card was moved. A card's functions keep their distance from it."""
    address = where.get(device.gpu)
    if address is None:
        return device
    parent = moved_function(device.parent, device.gpu, address)
    name = parent if device.name == device.parent else device.name
    fabric = device.fabric
    if fabric is not None:
        fabric = replace(fabric, gpus=tuple(where.get(gpu, gpu) for gpu in fabric.gpus))
    return replace(device, gpu=address, parent=parent, name=name, fabric=fabric)


def moved_function(function: str, gpu: str, address: str) -> str:
    """PCI address of a card's function once the card is at ``address``.

    PCI SR-IOV 1.1, 2.1.2: a virtual function's routing id is the physical one's, an offset and its number times a
    stride, all of which are the card's own."""
    number = _routing_id(address) + _routing_id(function) - _routing_id(gpu)
    return f"{address[:4]}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"


def _routing_id(address: str) -> int:
    _, bus, slot, function = split_pci_address(address)
    return bus << 8 | slot << 3 | function
