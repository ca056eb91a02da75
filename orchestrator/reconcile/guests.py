# SPDX-License-Identifier: Apache-2.0
"""Guests that boot are asked for here, so that the operations that wait for them hold no worker meanwhile. Those that
are to let us in are tried again and again by their operations, from here only after a pause.

Every controller asks, so that what one that died had begun goes on. How long a guest gets is counted by the monotonic
clock of each server from when that first saw its operation wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from orchestrator.core.contained import Contained
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.operations.definitions.vms import PROVISION_VM
from orchestrator.operations.steps.guest import AGAIN_AFTER_S, REACHED_WITHIN_S
from orchestrator.ports.clock import Clock
from orchestrator.ports.engine import Engine
from orchestrator.ports.host import HostLink
from orchestrator.store.database import Store
from orchestrator.store.records import BootingGuest

ROUND_S: Final = 0.5
_AT_ONCE: Final = 64
"""Hosts that are asked side by side: one that takes its time holds up nobody else."""
MOST: Final = 50
"""Guests are asked for in one round, so that a thousand that boot leave the server its processor."""
_REST: Final = 9.0
"""So many times as long as a host took to answer it is not asked again: of its time, which is also its guests', we take
a tenth."""
_MAX_REST_S: Final = 5.0
log = logging.getLogger(__name__)


class BootingGuests:
    """Wakes operations whose guest is not as they left it: it has an address, it is gone, its host does not tell. What
    that means is for their step to find out."""

    def __init__(self, store: Store, link: HostLink, clock: Clock, engine: Engine, *, limit_s: float) -> None:
        """``limit_s``: how long a guest gets to boot."""
        self._store = store
        self._link = link
        self._clock = clock
        self._engine = engine
        self._limit_s = limit_s
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="booting")
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        """When this server first saw an operation wait."""
        self._began: dict[tuple[str, int], float] = {}
        """The same of one attempt at it."""
        self._asked: dict[str, int] = {}
        """The round in which a host was asked for the last time."""
        self._rests: dict[str, float] = {}
        """Until when a host is not asked."""
        self._rounds = 0
        self._under_way: set[str] = set()

    def round(self) -> None:
        """Begin to ask for those that wait, on threads that nobody waits for; a host that has not answered yet, or took
        its time to, is left out. Where there are too many for one round, those come first that were asked for longest
        ago."""
        self._rounds += 1
        guests, now = self.waiting(), self._clock.monotonic()
        with self._lock:
            self._asked = {host: self._asked.get(host, 0) for host in guests}
            self._rests = {host: until for host, until in self._rests.items() if until > now}
            free = MOST
            for host in sorted(guests.keys() - self._under_way - self._rests.keys(), key=self._asked.__getitem__):
                if free > 0:
                    free -= len(guests[host])
                    self._asked[host] = self._rounds
                    self._under_way.add(host)
                    self._pool.submit(self._ask_there, host, guests[host])

    def waiting(self) -> Mapping[str, Sequence[BootingGuest]]:
        """By host, those that wait."""
        with self._store.read() as tx:
            booting = tx.operations.booting()
        now, by_host = self._clock.monotonic(), dict[str, list[BootingGuest]]()
        with self._lock:
            self._since = {guest.operation: self._since.get(guest.operation, now) for guest in booting}
            attempts = ((guest.operation, guest.attempt) for guest in booting)
            self._began = {guest: self._began.get(guest, now) for guest in attempts}
        for guest in booting:
            if guest.waits:
                by_host.setdefault(guest.host, []).append(guest)
        return by_host

    def ask(self, name: str, guests: Iterable[BootingGuest]) -> None:
        """Of one host: wake what can go on, and what has waited long enough."""
        guests, now = tuple(guests), self._clock.monotonic()
        with self._lock:
            long = {
                guest.operation for guest in guests if now - self._since.get(guest.operation, now) >= self._limit(guest)
            }
            tried = {
                guest.operation
                for guest in guests
                if _logs_in(guest) and now - self._began.get((guest.operation, guest.attempt), now) < AGAIN_AFTER_S
            }
        boot = self._boot(name, [guest for guest in guests if not _logs_in(guest)])
        self._let_rest(name, self._clock.monotonic() - now)
        ready = {guest.operation for guest in guests} - boot - tried - long
        if ready or long:
            with self._store.begin() as tx:
                tx.operations.end_guest_waits(ready, "tried")
                tx.operations.end_guest_waits(long, "over")
        for guest in (*ready, *long):
            self._engine.submit(guest)

    def close(self) -> None:
        """Questions that are under way end by their own time limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _limit(self, one: BootingGuest) -> float:
        return REACHED_WITHIN_S if _logs_in(one) else self._limit_s

    def _boot(self, name: str, guests: Sequence[BootingGuest]) -> set[str]:
        """Operations whose guests run and have no address yet, as far as the host tells."""
        booted = set[str]()
        try:
            with self._store.read() as tx:
                host = tx.hosts.get(name)
            if host.state == "unreachable":
                return set()  # they wait for their host instead, without trying
            booted.update(guest.operation for guest in guests if self._boots(host, guest.vm))
        except VgpuctlError as error:
            log.debug("host %s does not tell of its guests: %s", name, error.message)
        return booted

    def _let_rest(self, name: str, took: float) -> None:
        with self._lock:
            self._rests[name] = self._clock.monotonic() + min(_REST * took, _MAX_REST_S)

    def _boots(self, host: Host, vm: str) -> bool:
        domain = self._link.observe_domain(host, vm)
        if domain is None or domain.state not in {"running", "paused"}:
            return False
        return domain.state == "paused" or not domain.addresses

    def _ask_there(self, name: str, guests: Sequence[BootingGuest]) -> None:
        with Contained(lambda error: log.warning("guests on %s: %s", name, error)):
            self.ask(name, guests)
        with self._lock:
            self._under_way.discard(name)


def _logs_in(one: BootingGuest) -> bool:
    """Nobody but its operation can tell whether it can."""
    return one.kind == PROVISION_VM.kind
