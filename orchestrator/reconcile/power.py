# SPDX-License-Identifier: Apache-2.0
"""Has GPUs keep to limits of power, so that no budget is exceeded and what idles lends to what works."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction
from orchestrator.core.actions.vgpu_settings import SetPowerLimit
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.gpu.power import PowerPlan, plan
from orchestrator.core.hosts.host import Host
from orchestrator.ports.clock import Clock
from orchestrator.reconcile.bounded_pool import BoundedPool
from orchestrator.services.hosts.power import powers_of
from orchestrator.store.database import Store
from orchestrator.store.power import KnownPower

log = logging.getLogger(__name__)
POWER_S: Final = 10.0
"""Between passes: as often as hosts tell what GPUs draw."""
MAX_HOSTS: Final = 200
"""That are sent something in one half of a pass; the others' turn comes with the next ones."""
_AT_ONCE: Final = 8
_SEND_S: Final = 8.0
_OPERATION: Final = "power"
"""Of all limits: hosts refuse those of an older pass than they have heard of."""

_OWN: Final = 0
"""Watts of a limit that is the GPU's own."""

Key = tuple[str, str]
"""Host and PCI address."""


@dataclass(frozen=True)
class _Seen:
    known: Mapping[Key, KnownPower]
    hosts: Mapping[str, Host]
    """Those that answer."""
    plan: PowerPlan
    free: set[Key]
    """GPUs that nothing limits any more, and that have not their own limit yet."""


@dataclass
class PowerKeeper:
    """``leads``: one of several controllers does it. Should two believe that they lead, the newer pass holds: the older
    one grants nothing any more, and what it sends late is refused."""

    store: Store
    perform: Callable[[Host, HostAction, FencingToken], ActionResult]
    """As ports/host.HostLink has it."""
    drawn: Callable[[set[str]], Mapping[Key, float]]
    """What GPUs of these hosts take now, in watts, of those that tell."""
    clock: Clock
    leads: Callable[[], bool] = lambda: True
    _sent: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """What was confirmed last, and when: an observation that began before shows what was before."""
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8 * _AT_ONCE, "power"))

    def round(self) -> None:
        if not self.leads():
            return
        with self.store.read() as tx:
            budgets, known = tx.power.budgets(), tx.power.all()
        if not budgets and all(power.cap is None and power.granted is None for power in known.values()):
            return
        drawn = self.drawn({host for host, _ in known})
        with self.store.begin() as tx:
            number = tx.power.begin_pass()
        self._lower(number, drawn)
        self._raise(number, drawn)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _lower(self, number: int, drawn: Mapping[Key, float]) -> None:
        """Also what has another limit than it was granted, as after its driver was loaded anew. It counts less once its
        host has answered. What was seen above that may be over by now: more than was granted is sent to none here."""
        seen = self._read(drawn)
        wanted = {key: known.granted for key, known in seen.known.items() if key not in seen.free and _differs(known)}
        lower = {key: min(watts, seen.known[key].granted or watts) for key, watts in seen.plan.lower.items()}
        confirmed = self._send(number, seen.hosts, {**wanted, **lower})
        self._grant(number, {key: watts for key, watts in confirmed.items() if key in lower})

    def _raise(self, number: int, drawn: Mapping[Key, float]) -> None:
        """It counts before it is sent."""
        seen = self._read(drawn)
        chosen = sorted({host for host, _ in seen.plan.higher})[:MAX_HOSTS]
        higher = {key: watts for key, watts in seen.plan.higher.items() if key[0] in chosen}
        if self._grant(number, higher):
            back = dict.fromkeys(seen.free, _OWN)
            confirmed = self._send(number, seen.hosts, {**higher, **back})
            self._grant(number, dict.fromkeys(confirmed.keys() & back.keys()))

    def _read(self, drawn: Mapping[Key, float]) -> _Seen:
        with self.store.read() as tx:
            budgets, known = tx.power.budgets(), tx.power.all()
            hosts = {host.name: host for host in tx.hosts.list()}
        known = {key: self._as_sent(power, key, hosts[key[0]]) for key, power in known.items()}
        gpus = powers_of(hosts.values(), known, budgets, drawn)
        ours = [gpu for gpu in gpus if gpu.budgets or known[gpu.key].cap is not None]
        free = {
            gpu.key
            for gpu in gpus
            if not gpu.budgets and known[gpu.key].cap is None and known[gpu.key].granted is not None and not gpu.fixed
        }
        answering = {name: host for name, host in hosts.items() if host.state == "ready" and host.restored != "unseen"}
        return _Seen(known, answering, plan(ours, budgets), free)

    def _as_sent(self, power: KnownPower, key: Key, host: Host) -> KnownPower:
        watts, at = self._sent.get(key, (0, 0.0))
        older = host.last_seen_at is not None and host.last_seen_at <= at
        return replace(power, now=watts or power.default) if older and power.now is not None else power

    def _grant(self, number: int, granted: Mapping[Key, int | None]) -> bool:
        """False: another pass has begun meanwhile."""
        with self.store.begin() as tx:
            if not tx.power.is_last_pass(number):
                return False
            known = tx.power.all() if granted else {}
            tx.power.put({key: replace(known[key], granted=watts) for key, watts in granted.items() if key in known})
            return True

    def _send(self, number: int, hosts: Mapping[str, Host], wanted: Mapping[Key, int | None]) -> dict[Key, int]:
        """Those that were confirmed."""
        confirmed: dict[Key, int] = {}
        by_host: dict[str, list[SetPowerLimit]] = defaultdict(list)
        for (host, gpu), watts in wanted.items():
            if host in hosts and watts is not None:
                by_host[host].append(SetPowerLimit(gpu=gpu, watts=watts))

        def send(name: str) -> None:
            host = hosts[name]
            token = FencingToken(site=self.store.site, epoch=host.epoch, operation=_OPERATION, attempt=number)
            for action in by_host[name]:
                try:
                    self.perform(host, action, token)
                except VgpuctlError as error:  # it counts as before, and is sent again
                    log.info("GPU %s of host %s keeps its limit: %s", action.gpu, name, error.message)
                else:
                    confirmed[name, action.gpu] = action.watts
                    self._sent[name, action.gpu] = action.watts, self.clock.now()

        pool = BoundedPool(pool=self._pool, at_once=_AT_ONCE, do=send)
        pool.work(sorted(by_host)[:MAX_HOSTS], _SEND_S, wait_for_stalled=False)
        return dict(confirmed)


def _differs(known: KnownPower) -> bool:
    return known.granted is not None and known.now is not None and known.now != known.granted
