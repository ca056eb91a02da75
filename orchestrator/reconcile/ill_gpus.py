# SPDX-License-Identifier: Apache-2.0
"""Has GPUs that are unfit emptied and reset, where the site says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.gpu.health import closing_fault
from orchestrator.core.gpu.health_states import BY_ITSELF, not_waived
from orchestrator.core.maintenance.maintenance import UNDER_WAY, Planned
from orchestrator.core.vms.lease import DAY_S
from orchestrator.operations.gpu_health import gpu_faults, users_of_gpu
from orchestrator.reconcile.rebooted_gpus import RebootedGpus
from orchestrator.services.hosts.gpus import CardService
from orchestrator.services.maintenance.maintenances import MAX_SHOWN, MaintenanceService, WantedDrain
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

log = logging.getLogger(__name__)
_HELPED: Final = frozenset({"drain_and_reset", "reload_driver"})
"""By a reset."""


@dataclass(frozen=True)
class IllGpus:
    """``a_day``: so many GPUs of the site are emptied within a day at most, whoever asked for it; 0: none by itself.
    While the breaker is open nothing begins. On a host it is one GPU at a time, as maintenance is. ``leads``: one of
    several controllers does it."""

    store: Store
    maintenances: MaintenanceService
    cards: CardService
    a_day: int
    leads: Callable[[], bool] = lambda: True

    def round(self) -> None:
        if not self.a_day or not self.leads():
            return
        with self.store.read() as tx:
            is_open = tx.gpu_health.breaker().opened is not None
        RebootedGpus(self.maintenances, self.cards).round(may_begin=not is_open)
        if is_open:
            return
        with self.store.read() as tx:
            empty, unfit = tuple(_empty(tx)), tuple(_unfit(tx))
            since = self.maintenances.clock.now() - DAY_S
            begun = sum(its.gpu is not None and its.created_at > since for its in tx.maintenances.list(most=MAX_SHOWN))
        for host, gpu in empty:
            self._try(host, gpu, "reset")
        for host, gpu in unfit[: max(self.a_day - begun, 0)]:
            self._try(host, gpu, "emptied")

    def _try(self, host: str, gpu: str, what: str) -> None:
        try:
            if what == "reset":
                self.cards.reset(host, gpu)
            else:
                wanted = WantedDrain(when=Planned(reason="its GPU is at fault"))
                self.maintenances.drain(host, wanted, gpu)
        except VgpuctlError as error:  # something else is at work there
            log.info("GPU %s of host %s is not %s: %s", gpu, host, what, error.message)


def _unfit(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Host and address of those that a reset helps, one of a host, on hosts that nothing else is done to."""
    taken = {turn.host for its in tx.maintenances.active() for turn in its.hosts if turn.ended_at is None}
    for name, gpu, health in tx.gpu_health.all():
        if health.state != "unfit" or name in taken:
            continue
        host, snapshot = tx.hosts.get(name), tx.hosts.snapshot(name)
        if host.state != "ready" or snapshot is None:
            continue
        closing = closing_fault(not_waived(gpu_faults(tx, host, snapshot, gpu), health))
        if closing is not None and closing.remedy in _HELPED:
            taken.add(name)
            yield name, gpu


def _empty(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Those that were emptied by :class:`IllGpus`, on hosts that answer and that no person is at."""
    turns = [(turn, its.gpu) for its in tx.maintenances.active() for turn in its.hosts]
    active = {(turn.host, gpu) for turn, gpu in turns}
    taken = {turn.host for turn, gpu in turns if gpu is None and turn.phase in UNDER_WAY}
    for name, gpu, health in tx.gpu_health.all():
        emptied = health.mends and health.by == BY_ITSELF and (name, gpu) not in active and name not in taken
        if emptied and tx.hosts.get(name).state == "ready" and not users_of_gpu(tx, name, gpu):
            yield name, gpu
