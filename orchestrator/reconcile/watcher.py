# SPDX-License-Identifier: Apache-2.0
"""Listens to agents: their events, so that what somebody does on a host is seen in a moment and not at the next round,
and the readings that they send on the same channel.

Events may get lost and listening may fail: rounds find everything anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import FINISHED
from orchestrator.core.readings.frame import HostFrame
from orchestrator.ports.host import HostLink
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.store.database import Store


class Watcher:
    """A thread and a channel for each host that is listened to."""

    def __init__(
        self,
        store: Store,
        link: HostLink,
        happened: Callable[[str], None],
        readings: KeptReadings,
        *,
        most: int,
        turn: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """``happened`` is called with a host's name. ``most``: hosts listened to at once; 0: none. ``turn``: of a host
        by name; where not all are listened to, those with the lowest are."""
        self._store = store
        self._link = link
        self._happened = happened
        self._readings = readings
        self._most = most
        self._turn = turn
        self._lock = threading.Lock()
        self._listening: dict[str, threading.Thread] = {}
        self._closed = False

    def round(self) -> None:
        """Begin to listen wherever nobody does: new hosts, and those whose channel has ended since."""
        self._readings.drop_old()
        with self._lock:
            self._listening = {name: thread for name, thread in self._listening.items() if thread.is_alive()}
            room = 0 if self._closed else self._most - len(self._listening)
        if room <= 0:
            return
        with self._store.read() as tx:
            ready = tx.observations.ready()
        with self._lock:
            unheard = [host for host in ready if host.name not in self._listening]
            free = sorted(unheard, key=lambda host: self._turn(host.name))
            for host in free[: 0 if self._closed else room]:
                thread = threading.Thread(target=partial(self._listen, host), name=f"watch-{host.name}", daemon=True)
                self._listening[host.name] = thread
                thread.start()

    def close(self) -> None:
        """Nothing is told any more. The threads end with their channels."""
        with self._lock:
            self._closed = True

    def _listen(self, host: Host) -> None:
        try:
            for sent in self._link.watch(host):
                if isinstance(sent, HostFrame):
                    self._readings.receive(host.name, sent)
                elif self._is_news(sent):
                    self._tell(host.name)
        except VgpuctlError:
            return  # the next round of looks says what is wrong with the host, and listens again

    def _is_news(self, event: dict[str, object]) -> bool:
        """What an operation of ours does is no news: the host is looked at when it has ended."""
        vm_id = event.get("vm")
        with self._store.read() as tx:
            vm = tx.vms.find_id(vm_id) if isinstance(vm_id, str) else None
            if vm is None or vm.operation is None:
                return True
            return tx.operations.get(vm.operation).operation.state in FINISHED

    def _tell(self, name: str) -> None:
        with self._lock:
            if not self._closed:
                self._happened(name)
