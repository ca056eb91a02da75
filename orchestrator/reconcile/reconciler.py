# SPDX-License-Identifier: Apache-2.0
"""Looks at every host again and again, several at a time, and writes down what differs from what is wanted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from orchestrator.core.contained import Contained
from orchestrator.core.diff import Finding, compare, host_broke, host_findings
from orchestrator.core.errors import NotFound, WorldError
from orchestrator.core.host import Host
from orchestrator.ports.clock import Clock
from orchestrator.ports.store.transaction import Store, Transaction
from orchestrator.reconcile.leases import LeaseKeeper
from orchestrator.reconcile.repairs import ACTOR, Repairer
from orchestrator.reconcile.wanted import wanted_of
from orchestrator.services.observing import HostObserver

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Reconciler:
    """Safe to call from many threads; hosts never wait for each other, and one host is looked at once at a time."""

    store: Store
    observer: HostObserver
    repairer: Repairer
    leases: LeaseKeeper
    clock: Clock
    at_once: int = 16
    """Hosts that are looked at side by side."""
    timeout_s: float = 60.0
    """How long a round waits for a slow host; its look goes on and the next rounds leave it out."""
    silent_timeout_s: float = 5.0
    """And how long for those that did not answer the last time."""
    repairs: bool = True
    """Whether safe repairs are done without being asked."""
    _pool: ThreadPoolExecutor = field(init=False)
    _silent_pool: ThreadPoolExecutor = field(init=False)
    """Hosts that do not answer take their time here: however many are down, the others are looked at as before."""
    _under_way: dict[str, Future[None]] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name in ("_pool", "_silent_pool"):
            object.__setattr__(self, name, ThreadPoolExecutor(self.at_once, thread_name_prefix=f"look{name}"))

    def round(self) -> None:
        """One observation of every host that is not being looked at."""
        with self.store.read() as tx:
            hosts = tx.hosts.list()
        silent = self._begin((one.name for one in hosts if one.state == "unreachable"), self._silent_pool)
        answering = self._begin((one.name for one in hosts if one.state != "unreachable"), self._pool)
        self._wait_for(answering, self.timeout_s)
        self._wait_for(silent, self.silent_timeout_s)

    def observe_soon(self, name: str) -> None:
        """Something happened there; more of it while a look is under way is seen by the next round."""
        self._begin([name], self._pool)

    def observe(self, name: str) -> None:
        """See the host, compare, write down, end leases, repair what is safe. What one part makes of a host's answers
        keeps no other part, and no other host, from its turn: it becomes a finding about that host.

        :raises WorldError: of the database alone"""
        parts: list[Callable[[str], object]] = [self.observer.observe, self._compare, self.leases.end_leases]
        if self.repairs:
            parts += [self.repairer.take_up, self._repair]
        broken: list[Exception] = []
        for part in parts:
            with Contained(broken.append):
                part(name)
        if broken:
            self._tell(name, broken)

    def _repair(self, name: str) -> None:
        self.repairer.repair(host=name, automatic_only=True)

    def _tell(self, name: str, broken: Sequence[Exception]) -> None:
        away = [error for error in broken if isinstance(error, WorldError)]
        ours = [error for error in broken if not isinstance(error, WorldError)]
        for error in ours:
            log.error("what %s answered broke us", name, exc_info=error)
        if away:
            raise away[0]
        with self.store.begin() as tx:
            host = _find(tx, name)
            if host is not None:
                found = [*host_findings(host), host_broke(host, [type(error).__name__ for error in ours])]
                now = self.clock.now()
                _audit(tx, tx.findings.record(name, found, at=now, complete=False), now)

    def close(self) -> None:
        """Looks that have begun go on until their own time limits; nobody waits for them."""
        for pool in (self._pool, self._silent_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, names: Iterable[str], pool: ThreadPoolExecutor) -> list[Future[None]]:
        with self._lock:
            free = [name for name in names if name not in self._under_way or self._under_way[name].done()]
            begun = {name: pool.submit(self.observe, name) for name in free}
            self._under_way.update(begun)
        return list(begun.values())

    def _wait_for(self, observations: list[Future[None]], timeout_s: float) -> None:
        """:raises WorldError: the database was away for one of them"""
        for observation in wait(observations, timeout=timeout_s).done:
            if not observation.cancelled():
                observation.result()

    def _compare(self, name: str) -> None:
        """Written only when there is something to say, or was."""
        now = self.clock.now()
        with self.store.read() as tx:
            found = self._found(tx, name, now)
            if found is None or (not found[0] and not tx.findings.list(host=name, cleared=True)):
                return
        with self.store.begin() as tx:
            found = self._found(tx, name, now)
            if found is not None:
                _audit(tx, tx.findings.record(name, found[0], at=now, complete=found[1]), now)

    def _found(self, tx: Transaction, name: str, now: float) -> tuple[list[Finding], bool] | None:
        """And whether the look was complete. None: there is no such host."""
        host = _find(tx, name)
        if host is None:
            return None
        snapshot = tx.hosts.snapshot(name)
        found = [*host_findings(host), *self.leases.findings(tx, name, now)]
        complete = host.state == "ready" and snapshot is not None and host.last_seen_at is not None
        if snapshot is not None and host.last_seen_at is not None and complete:
            wanted = wanted_of(tx, host, snapshot, host.last_seen_at)
            found += compare(wanted, snapshot)
            complete = not any(one.code == "host.half_seen" for one in found)
        return found, complete or host.state == "forgotten"


def _find(tx: Transaction, name: str) -> Host | None:
    try:
        return tx.hosts.get(name)
    except NotFound:
        return None


def _audit(tx: Transaction, fresh: Iterable[Finding], now: float) -> None:
    for one in fresh:
        tx.audit.append(at=now, actor=ACTOR, action=one.code, subject=one.subject, outcome=f"found: {one.observed}")
