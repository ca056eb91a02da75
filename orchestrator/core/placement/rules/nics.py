# SPDX-License-Identifier: Apache-2.0
"""A VM that is given a function of a network card gets one of a card near its GPU: under one PCIe switch with it, else
on its NUMA node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.placement.rules.rule import Amounts, Fact, GpuInUse, HostInUse, Need, Resource, find
from orchestrator.core.placement.rules.wanted import Wanted

_NIC: Final = "nic"


@dataclass(frozen=True, slots=True)
class NearNics(Fact):
    """Of a GPU: the cards near it whose functions may be given, nearest first."""

    cards: tuple[str, ...]
    under_switch: bool = False
    """Whether these are under one PCIe switch with it."""


@dataclass(frozen=True, slots=True)
class NeedsNic(Need):
    """A function of one. Of whole GPUs it is enough that one of a set has a card."""

    codes = ("host.no_nic", "host.nics_taken", "gpu.no_nic", "gpu.nics_taken")
    curable = ("host.nics_taken",)
    yielded = curable
    after_shortage = True
    near_gpus = True

    whole_gpus: bool

    @property
    def judges_empty_gpus(self) -> bool:
        return True

    def off_host(self, host: HostInUse) -> Iterator[str]:
        if not any(_near(gpu).cards for gpu in host.gpus):
            yield "host.no_nic"
        elif not _nearest(host.gpus, host.free):
            yield "host.nics_taken"

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if not self.whole_gpus and not _nearest((gpu,), gpu.host.free):
            yield "gpu.nics_taken" if _near(gpu).cards else "gpu.no_nic"

    def off_set(self, gpus: Sequence[GpuInUse]) -> Iterator[str]:
        if not self.takes(gpus):
            yield "gpu.nics_taken"

    def takes(self, gpus: Sequence[GpuInUse]) -> Amounts:
        card = _nearest(gpus, gpus[0].host.free)
        return functions_of({card: 1}) if card else ()

    def short(
        self, host: HostInUse, gpus: Sequence[GpuInUse] | None, free: Mapping[Resource, int]
    ) -> tuple[int, ...] | None:
        near = host.gpus if gpus is None else gpus
        if not any(_near(gpu).cards for gpu in near):
            return None
        return (int(not _nearest(near, free)),)

    def words_of_place(self, gpus: Sequence[GpuInUse], taken: Amounts) -> str:
        card = card_of(taken)
        under = any(is_under_switch(gpu.facts, card) for gpu in gpus)
        if under:
            return "its network card is under the GPU's own PCIe switch"
        return "its network card is on the GPU's NUMA node, as none is under its PCIe switch"

    def message(self, code: str) -> str:
        return {
            "host.no_nic": "no network card that may be given to VMs is near a GPU of the host",
            "host.nics_taken": "every function of the network cards near the host's GPUs is taken",
            "gpu.no_nic": "no network card that may be given to VMs is near the GPU",
            "gpu.nics_taken": "every function of the network cards near the GPU is taken",
        }[code]


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.vm.nic is not None or wanted.offering.nic is not None:
        yield NeedsNic(whole_gpus=wanted.offering.kind == "passthrough")


def functions_of(cards: Mapping[str, int]) -> Amounts:
    """Card → functions of it."""
    return tuple((Resource(_NIC, of=card), count) for card, count in cards.items())


def card_of(taken: Amounts) -> str:
    """Of which a VM has a function; empty: of none."""
    return next((str(resource.of) for resource, _ in taken if resource.kind == _NIC), "")


def is_under_switch(gpu: tuple[Fact, ...], card: str) -> bool:
    """Whether the card is under one PCIe switch with the GPU of these facts."""
    near = find(gpu, NearNics)
    return near is not None and near.under_switch and card in near.cards


def _near(gpu: GpuInUse) -> NearNics:
    return find(gpu.facts, NearNics) or NearNics(())


def _nearest(gpus: Sequence[GpuInUse], free: Mapping[Resource, int]) -> str:
    """The nearest card with a function that is free, one under a switch with a GPU first; empty: there is none."""
    for near in sorted(map(_near, gpus), key=lambda near: not near.under_switch):
        for card in near.cards:
            if free.get(Resource(_NIC, of=card), 0) > 0:
                return card
    return ""
