# SPDX-License-Identifier: Apache-2.0
"""Looks at every host again and again, several at a time, and writes down what differs from what is wanted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Final

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.actions.gpu_cards import cards_of, found_mig_modes
from orchestrator.core.contained import Contained
from orchestrator.core.diff import (
    ExpectedHost,
    Finding,
    card_findings,
    compare,
    driver_findings,
    health_findings,
    host_broke,
    host_findings,
    unreached_findings,
)
from orchestrator.core.diff.finding import tells_of_something_newer
from orchestrator.core.diff.gpus import sharing_findings, tenants_by_gpu
from orchestrator.core.errors import NotFound, WorldError
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.operations.restored import is_restored
from orchestrator.ports.clock import Clock
from orchestrator.reconcile.bounded_pool import MAX_STALLED_FACTOR, BoundedPool
from orchestrator.reconcile.leases import LeaseKeeper
from orchestrator.reconcile.repairs import ACTOR, Repairer
from orchestrator.reconcile.unchanged_hosts import UnchangedHosts
from orchestrator.reconcile.wanted import cordon_findings, fact_findings, overran_findings, wanted_of
from orchestrator.services.hosts.observing import HostObserver
from orchestrator.store.database import Store
from orchestrator.store.records import LastObservation
from orchestrator.store.transaction import Transaction

log = logging.getLogger(__name__)
_ANYWAY_PER_S: Final = 100.0
"""So many looks in a second disturb nobody."""


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
    """How long a round takes at most. A look that is under way then goes on, and the next rounds leave it out."""
    silent_timeout_s: float = 5.0
    """And how long for those that did not answer the last time."""
    between_s: float = 1.0
    """Least time from look to look at a host that says that something happened."""
    _pool: ThreadPoolExecutor = field(init=False)
    _silent_pool: ThreadPoolExecutor = field(init=False)
    """Hosts that do not answer take their time here: however many are down, the others are looked at as before."""
    _unchanged: UnchangedHosts = field(init=False)
    _under_way: set[str] = field(init=False, default_factory=set)
    _happened: set[str] = field(init=False, default_factory=set)
    """Hosts of which something was told that no look has begun after."""
    _began: dict[str, float] = field(init=False, default_factory=dict)
    """When the newest look at a host did (monotonic); of hosts that told something."""
    _closed: threading.Event = field(init=False, default_factory=threading.Event)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name, threads in (("_pool", self.at_once * MAX_STALLED_FACTOR), ("_silent_pool", self.at_once)):
            object.__setattr__(self, name, ThreadPoolExecutor(threads, thread_name_prefix=f"look{name}"))
        object.__setattr__(self, "_unchanged", UnchangedHosts(self.store, self.observer))

    def round(self, *, over_s: float = 0.0, asked: bool = False) -> None:
        """One look at every host that is not being looked at. ``over_s``: what is not urgent is spread over so many
        seconds, so that whoever asks meanwhile does not wait for thousands of looks. ``asked``: somebody wants to know
        how hosts are now; one that is being looked at, as it was before, is looked at beside that, and the slowest is
        waited for. Else the next rounds begin without those that take long.

        :raises WorldError: the database was away for one of them"""
        hosts, unchanged = self._unchanged.read(self.clock.now())
        with self._lock:
            for name in self._began.keys() - {observed.host.name for observed in hosts}:
                del self._began[name]
        by_state = {"unreachable": list[LastObservation](), "other": list[LastObservation]()}
        for observed in hosts:
            by_state["unreachable" if observed.host.state == "unreachable" else "other"].append(observed)
        silent = [self._silent_pool.submit(self._one, observed.host.name) for observed in by_state["unreachable"]]
        pool = BoundedPool(pool=self._pool, at_once=self.at_once, do=partial(self._look, unchanged, asked))
        over_s = min(over_s, self.timeout_s / 2)
        per_s = max(len(by_state["other"]) / over_s, _ANYWAY_PER_S) if over_s else None
        pool.work(by_state["other"], self.timeout_s, per_s=per_s, wait_for_stalled=asked)
        self._unchanged.keep()
        for error in pool.errors:
            raise error
        for future in wait(silent, timeout=self.silent_timeout_s).done:
            if not future.cancelled():
                future.result()

    def observe_soon(self, name: str) -> None:
        """Something happened there: it is looked at on a thread of the rounds, and once more after a look that is under
        way. Whoever tells waits for nothing."""
        with self._lock:
            known_already = name in self._happened
            self._happened.add(name)
            if not (known_already or name in self._under_way):
                self._look_soon(name)

    def _look_soon(self, name: str) -> None:
        """Inside the lock. A host that tells without a pause is looked at no more often than ``between_s`` allows."""
        if self._closed.is_set():
            return
        wait_s = self._began.get(name, 0.0) + self.between_s - monotonic()
        if wait_s <= 0:
            self._pool.submit(self._one, name)
            return
        timer = threading.Timer(wait_s, self._look_now, (name,))
        timer.daemon = True
        timer.start()

    def _look_now(self, name: str) -> None:
        with self._lock:
            if name in self._happened and name not in self._under_way and not self._closed.is_set():
                self._pool.submit(self._one, name)

    def _look(self, unchanged: Container[str], asked: bool, last: LastObservation) -> None:
        """Where nothing was to be said and nothing has changed, that is all."""
        name, digest = last.host.name, last.digest
        if name not in unchanged or digest is None:
            self._one(name, asked=asked)
            return
        with self._alone(name) as free:
            if free:
                self._unchanged.look(last, digest, otherwise=self._judge, asked=asked)
            elif asked:
                self.observe(name)

    def _one(self, name: str, *, asked: bool = False) -> None:
        with self._alone(name) as free:
            if free or asked:
                self.observe(name)

    @contextmanager
    def _alone(self, name: str) -> Iterator[bool]:
        """Whether nobody else looks at it; then nobody does until the end of the block."""
        with self._lock:
            free = name not in self._under_way
            if free:
                self._under_way.add(name)
                self._happened.discard(name)
                self._began[name] = monotonic()
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._under_way.discard(name)
                    if name in self._happened:
                        self._look_soon(name)

    def observe(self, name: str) -> None:
        """See the host, compare, write down, end leases, repair what is safe. What one part makes of a host's answers
        keeps no other part, and no other host, from its turn: it becomes a finding about that host.

        :raises WorldError: of the database alone"""
        self._judge(name, self.observer.observe)

    def _judge(self, name: str, see: Callable[[str], object]) -> None:
        """``see`` stores what the host shows."""
        parts: list[Callable[[str], object]] = [see, self._compare, self.leases.end_leases]
        parts += [self.repairer.wake, self.repairer.take_up, self._repair]
        broken: list[Exception] = []
        for part in parts:
            with Contained(broken.append):
                part(name)
        if broken:
            self._tell(name, broken)

    def _repair(self, name: str) -> None:
        self.repairer.repair(host=name, asked=False)

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
                findings = [*host_findings(host), host_broke(host, [type(error).__name__ for error in ours])]
                now = tx.time.no_earlier(self.clock.now())
                _audit(tx, tx.findings.record(name, findings, at=now, complete=False), now)

    def close(self) -> None:
        """Looks that have begun go on until their own time limits; nobody waits for them."""
        with self._lock:
            self._closed.set()
        for pool in (self._pool, self._silent_pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def _compare(self, name: str) -> None:
        """Written only when there is something to say, or was."""
        now = self.clock.now()
        with self.store.read() as tx:
            findings = self._found(tx, name, now)
            if findings is None or (
                tx.hosts.get(name).restored is None
                and not findings[0]
                and tx.observations.is_judged(name)
                and not tx.findings.list(host=name, cleared=True)
            ):
                return
        self.repairer.pacing.compared(name)
        with self.store.begin() as tx:
            findings = self._found(tx, name, now)
            if findings is not None:
                at = tx.time.no_earlier(now)
                _audit(tx, tx.findings.record(name, findings[0], at=at, complete=findings[1]), now)
                tx.observations.judge(name)
                _learn_cards(tx, name)
                _settle_restored(tx, name, *findings)

    def _found(self, tx: Transaction, name: str, now: float) -> tuple[list[Finding], bool] | None:
        """And whether the look was complete. None: there is no such host."""
        host = _find(tx, name)
        if host is None:
            return None
        snapshot, turn = tx.hosts.snapshot(name), tx.hosts.snapshot_turn(name)
        findings = [*host_findings(host), *unreached_findings(host, tx.controllers.missing(name))]
        findings += [*cordon_findings(tx, host), *overran_findings(tx, host), *self.leases.findings(tx, name, now)]
        complete = host.state == "ready" and snapshot is not None
        if snapshot is not None and turn is not None and complete:
            wanted = wanted_of(tx, host, snapshot, turn, now)
            findings += [
                *compare(wanted, snapshot),
                *_sharing(tx, wanted, snapshot),
                *fact_findings(host, snapshot),
                *health_findings(wanted, snapshot, shipped().signal_meanings, now),
                *card_findings(host, tx.cards.of_host(name), snapshot),
                *driver_findings(tx.driver_locks.get(), host, snapshot),
            ]
            complete = not any(finding.code == "host.half_seen" for finding in findings)
        return findings, complete or host.state == "forgotten"


def _sharing(tx: Transaction, wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    shared = tenants_by_gpu(wanted.placed)
    if shared:
        divided = frozenset(gpu.address for gpu in snapshot.gpus if gpu.mig_enabled)
        yield from sharing_findings(wanted.host, shared, divided, tx.policies.isolations())


def _learn_cards(tx: Transaction, name: str) -> None:
    """Of hosts that were enrolled before cards, or MIG modes, were known."""
    snapshot = tx.hosts.snapshot(name)
    if snapshot is not None and len(tx.cards.of_host(name)) < len(tx.hosts.get(name).managed_gpus):
        tx.cards.learn(name, cards_of(snapshot.gpus))
        tx.gpu_health.recall_quarantines(name)
    if snapshot is not None:
        tx.cards.learn_mig_modes(name, found_mig_modes(snapshot.gpus))


def _find(tx: Transaction, name: str) -> Host | None:
    try:
        return tx.hosts.get(name)
    except NotFound:
        return None


def _audit(tx: Transaction, fresh: Iterable[Finding], now: float) -> None:
    for finding in fresh:
        tx.audit.append(
            at=now, actor=ACTOR, action=finding.code, subject=finding.subject, outcome=f"found: {finding.observed}"
        )


def _settle_restored(tx: Transaction, name: str, findings: Sequence[Finding], complete: bool) -> None:
    """After a restore a host is as any other from the first look on that finds nothing newer than the database."""
    host = tx.hosts.get(name)
    open_operations = any(is_restored(operation) for operation in tx.operations.stuck_on(name))
    if (
        host.restored == "seen"
        and complete
        and not open_operations
        and not any(map(tells_of_something_newer, findings))
    ):
        tx.hosts.update(replace(host, restored=None))
