# SPDX-License-Identifier: Apache-2.0
"""Machines in real time: one request at a time per machine, each kept on disk before it is answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot
from orchestrator.core.protocol import encode_frame
from orchestrator.core.wire import look_to_dict, unless_known
from orchestrator.sim.fleet import SimulatedFleet, enrolled
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.machine_files import MachineFiles
from orchestrator.sim.machine_link import OBSERVE, MachineLink
from orchestrator.sim.observing import snapshot_of

T = TypeVar("T")

_LOCKS: Final = 64


class _Unchanged(NamedTuple):
    """A look that found what its asker knew."""

    digest: str
    frame: bytes


def _runs(domain: DomainSnapshot) -> bool:
    return domain.state == "running"


class LiveMachines:
    """All machines of one fleet. Safe to call from many threads."""

    def __init__(self, fleet: SimulatedFleet, kept: MachineFiles) -> None:
        """:raises Fatal: ``fleet.differs``"""
        self.fleet = fleet
        self._kept = kept
        self._touched = {address for address, machine in fleet.machines.items() if kept.restore(address, machine)}
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        """By index of the machine: thousands of machines need no lock each."""
        self._looks: dict[str, _Unchanged] = {}

    def call(self, address: str, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        """Do ``work`` on the machine; what it did is kept when it returns.

        :raises Retryable: ``host.unreachable``
        """
        machine = self._at(address)
        with self._locks[machine.index % _LOCKS]:
            machine.now = time.time()
            try:
                return work(machine)
            finally:
                if name != OBSERVE:
                    self._looks.pop(address, None)
                    self._touched.add(address)
                    self._kept.keep(address, machine)

    def look(self, address: str, check: Callable[[SimulatedMachine], SimulatedMachine], known: str | None) -> bytes:
        """The frame that answers a look. That nothing has changed is found out once for as long as nothing happens
        there: this process shares the processors with the server."""

        def written(machine: SimulatedMachine) -> bytes:
            check(machine)
            kept = self._looks.get(address)
            if kept is not None and kept.digest == known:
                return kept.frame
            snapshot = snapshot_of(machine)
            answer = unless_known(snapshot, known)
            frame = encode_frame({"result": look_to_dict(answer)})
            if (
                known
                and answer is not snapshot
                and all(domain.addresses for domain in snapshot.domains if _runs(domain))
            ):
                self._looks[address] = _Unchanged(known, frame)
            return frame

        return self.call(address, OBSERVE, written)

    def enrol(self, site: str, unknown: frozenset[str]) -> None:
        """Make ready for ``site`` what is ``unknown`` to it, and the machines on which nothing has happened yet."""
        for address, machine in self.fleet.machines.items():
            if address in unknown or (address not in self._touched and machine.ledger.site != site):
                enrolled(machine, site)
                self._looks.pop(address, None)

    def _at(self, address: str) -> SimulatedMachine:
        if address not in self.fleet.machines:
            raise Retryable(
                "host.unreachable", f"{address} cannot be reached", details="the fleet file has no such host"
            )
        return self.fleet.machines[address]


class LiveLink(MachineLink):
    """One server's way to them."""

    def __init__(self, machines: LiveMachines, *, site: str) -> None:
        super().__init__(site=site)
        self._machines = machines

    def answer(self, host: Host, known: str | None) -> bytes:
        """A fresh observation of the whole host, as the frame that answers it."""
        return self._machines.look(host.address, self._ours, known)

    def _call(self, host: Host, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        return self._machines.call(host.address, name, work)
