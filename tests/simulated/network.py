# SPDX-License-Identifier: Apache-2.0
"""What stands between the machines and the controllers."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.sim.fleet import SimulatedFleet
from orchestrator.sim.machine import SimulatedMachine


@dataclass
class NetworkFaults:
    """What the network and a host's load do to calls; each number is used up by that many calls."""

    cut: bool = False
    """No packet gets through, either way."""
    slow: float = 0.0
    """Seconds that every action takes there."""
    lose_requests: int = 0
    lose_answers: int = 0
    repeat: int = 0
    """The agent gets the request twice and answers twice."""


@dataclass
class FaultyFleet(SimulatedFleet):
    """``network`` by the address that hosts are added with."""

    network: dict[str, NetworkFaults] = field(default_factory=dict)

    def add(self, address: str, machine: SimulatedMachine) -> None:
        super().add(address, machine)
        self.network[address] = NetworkFaults()
