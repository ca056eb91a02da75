# SPDX-License-Identifier: Apache-2.0
"""Network cards of a machine that lives in memory, and those of a kernel tree, which set addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.nics import NicFunctions
from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.actions.nics import GiveNicFunction, TakeNicFunction
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.nic import HostNic, NicFunction
from tests.fakes.fake_machine import FakeMachine

CARD = HostNic(
    address="0000:05:00.0", vendor="15b3", device="101d", numa_node=0, bridges=(), interface="rdma0",
    functions=tuple(NicFunction(address=f"0000:05:00.{number}") for number in (1, 2)),
)  # fmt: skip
"""On the NUMA node of all GPUs of such a machine."""


def give(machine: FakeMachine, action: GiveNicFunction) -> None:
    if not any(one.address == action.vf for nic in machine.nics for one in nic.functions):
        raise Fatal("nic.function_gone", "that function is not there")
    if machine.nic_owners.get(action.vf, action.vm) != action.vm:
        raise Conflict("nic.foreign", "that function is another VM's")
    machine.nic_owners[action.vf] = action.vm


def take_back(machine: FakeMachine, action: TakeNicFunction) -> None:
    if machine.nic_owners.get(action.vf) != action.vm:
        return
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    del machine.nic_owners[action.vf]


NIC_FUNCTIONS: dict[type[HostAction], Callable[..., None]] = {GiveNicFunction: give, TakeNicFunction: take_back}


@dataclass
class FakeNicLinks:
    """``macs``: (interface, number of the function) → hardware address."""

    macs: dict[tuple[str, int], str] = field(default_factory=dict)
    refusal: str | None = None
    """What the card's driver says to every address."""

    def mac_of(self, interface: str, number: int) -> str | None:
        return self.macs.get((interface, number))

    def set_mac(self, interface: str, number: int, mac: str) -> str | None:
        if self.refusal is None:
            self.macs[interface, number] = mac
        return self.refusal


def network_functions(files: DeviceFiles) -> NicFunctions:
    """Over a tree whose cards take every address."""
    return NicFunctions(files, FakeNicLinks())
