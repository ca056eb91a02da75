# SPDX-License-Identifier: Apache-2.0
"""The way to machines in real time: one request at a time per machine, each kept on disk before it is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from orchestrator.core.errors import Retryable
from orchestrator.core.host import Host
from orchestrator.sim.fleet import Fleet
from orchestrator.sim.kept import KeptMachines
from orchestrator.sim.machine import Machine
from orchestrator.sim.machine_link import LOOK, MachineLink

T = TypeVar("T")

_LOCKS = 64


class LiveLink(MachineLink):
    """Of a server without hosts. Safe to call from many threads."""

    def __init__(self, fleet: Fleet, kept: KeptMachines, *, site: str) -> None:
        super().__init__(site=site)
        self._fleet = fleet
        self._kept = kept
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        """By index of the machine: thousands of machines need no lock each."""

    def _call(self, host: Host, name: str, work: Callable[[Machine], T]) -> T:
        if host.address not in self._fleet.machines:
            raise Retryable(
                "host.unreachable", f"{host.address} cannot be reached", details="the fleet file has no such host"
            )
        machine = self._fleet.of(host)
        with self._locks[machine.index % _LOCKS]:
            machine.now = time.time()
            try:
                return work(machine)
            finally:
                if name != LOOK:
                    self._kept.keep(host.address, machine)
