# SPDX-License-Identifier: Apache-2.0
"""What is done to a virtual function of a network card for a VM."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import HostAction, MakesDevice, RemovesDevice
from orchestrator.core.hosts.nic import NicPlace


@dataclass(frozen=True, kw_only=True)
class GiveNicFunction(MakesDevice):
    """Give a card's virtual function to vfio-pci for a VM, with the VM's hardware address. What it was before is
    written down first. Refused while anything on the host uses it, and when it cannot be kept apart from others."""

    card: str
    vf: str
    functions: int
    """How many the card has when it has any: after a boot, when it has none, as many are switched on."""
    mac: str

    @property
    def function(self) -> str:
        return self.vf

    def inverse(self) -> HostAction:
        return TakeNicFunction(vm=self.vm, card=self.card, vf=self.vf)


@dataclass(frozen=True, kw_only=True)
class TakeNicFunction(RemovesDevice):
    """Give it back to the driver that it had before, with the hardware address that it had. Refused while a VM has it
    open; one that is not this VM's is left as it is."""

    card: str
    vf: str


def giving_nic(vm_id: str, place: NicPlace | None) -> tuple[GiveNicFunction, ...]:
    """What gives a VM its function; nothing where it has none."""
    if place is None:
        return ()
    return (
        GiveNicFunction(vm=vm_id, card=place.card, vf=place.function, functions=place.functions, mac=place.mac),
    )  # fmt: skip
