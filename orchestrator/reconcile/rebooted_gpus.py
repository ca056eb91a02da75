# SPDX-License-Identifier: Apache-2.0
"""Where the reset of a GPU failed that began by itself: one reboot of its host, then it is tried, then it is a
person's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.gpu.health_states import HostReboot
from orchestrator.core.maintenance.maintenance import Planned
from orchestrator.services.begin import busy_with
from orchestrator.services.hosts.gpus import CardService
from orchestrator.services.maintenance.maintenances import MaintenanceService, WantedDrain
from orchestrator.store.transaction import Transaction

log = logging.getLogger(__name__)
REASON: Final = "the reset of one of its GPUs has failed"
PATIENCE_S: Final = 3600.0
"""A host whose VMs have not left by then serves on, and the GPU is left to a person."""

Due = Literal["reboot", "try", "give up", "cancel"]


@dataclass(frozen=True)
class RebootedGpus:
    """What is stored says how far each is, and where the host runs on another boot it was rebooted, whoever did: so no
    crash leads to a second reboot."""

    maintenances: MaintenanceService
    cards: CardService

    def round(self, *, may_begin: bool) -> None:
        """One step of each. ``may_begin``: whether hosts may be rebooted now."""
        with self.maintenances.store.read() as tx:
            due = tuple(_due(tx, self.maintenances.clock.now()))
        for host, gpu, what in due:
            try:
                if what == "cancel":
                    self.maintenances.cancel(gpu)
                elif what == "give up":
                    self._put(host, gpu, "over")
                elif what == "try":
                    self._try(host, gpu)
                elif may_begin:
                    self._reboot(host, gpu)
            except VgpuctlError as error:  # something else is at work there
                log.info("GPU %s of host %s, %s: %s", gpu, host, what, error.message)

    def _reboot(self, host: str, gpu: str) -> None:
        """Written down first: a crash before it is declared is a reboot less, never one more."""
        self._put(host, gpu, "begun")
        try:
            self.maintenances.drain(host, WantedDrain(when=Planned(reason=REASON)), act="reboot")
        except VgpuctlError:
            self._put(host, gpu, "due")
            raise

    def _try(self, host: str, gpu: str) -> None:
        try:
            self.cards.reset(host, gpu, rebooted=True)
        except VgpuctlError as error:
            if error.code != "host.busy":
                self._put(host, gpu, "over", f"after its host's reboot: {error.message}")
            raise

    def _put(self, host: str, gpu: str, reboot: HostReboot, why: str = "") -> None:
        with self.maintenances.store.begin() as tx:
            health = tx.hosts.get(host).health_of(gpu)
            if health is not None and health.reboot is not None:
                evidence = (why, *health.evidence) if why else health.evidence
                tx.gpu_health.put(host, gpu, replace(health, reboot=reboot, evidence=evidence), changed=False)


def _due(tx: Transaction, now: float) -> Iterator[tuple[str, str, Due]]:
    """Host, address and what is due; to be cancelled: the maintenance's id instead of the address. A host with MIG
    layouts is not rebooted: containers use them, and nobody asks those."""
    on = {turn.host: (its, turn) for its in tx.maintenances.active() for turn in its.hosts if turn.ended_at is None}
    chosen = set[str]()
    for name, gpu, health in tx.gpu_health.all():
        if health.reboot not in {"due", "begun"}:
            continue
        host, snapshot = tx.hosts.get(name), tx.hosts.snapshot(name)
        if name in on:
            its, turn = on[name]
            late = turn.phase == "emptying" and now > (turn.began_at or now) + PATIENCE_S
            if late and its.act == "reboot" and its.reason == REASON and its.state == "running":
                yield name, its.id, "cancel"
        elif name in chosen or host.state != "ready" or snapshot is None or busy_with(tx, host) is not None:
            continue
        elif snapshot.boot_id != health.failed_boot:
            yield name, gpu, "try"
        elif health.reboot == "begun":
            yield name, gpu, "give up"
        elif not host.mig_layouts:
            chosen.add(name)
            yield name, gpu, "reboot"
