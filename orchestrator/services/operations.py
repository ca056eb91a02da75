# SPDX-License-Identifier: Apache-2.0
"""Operations: watching them, and the ways out when one is stuck."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from orchestrator.core.errors import Conflict, Retryable, WorldError
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.operation import FINISHED, Operation, Watched, unknown_subject
from orchestrator.operations.context import Context, World
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.restored import hosts_of, is_about_its_host, is_restored, may_be_dead, record_outcome
from orchestrator.operations.stuck import take_up, ways_out
from orchestrator.ports.engine import Engine
from orchestrator.services.acting import actor
from orchestrator.services.known_names import names_of_things
from orchestrator.store.records import Job, OperationFilter
from orchestrator.store.transaction import Transaction

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OperationService:
    """Everything about operations but starting them."""

    world: World
    engine: Engine

    def get(self, operation_id: str) -> Operation:
        """:raises NotFound: ``operation.unknown``"""
        return self._job(operation_id).operation

    def list(
        self, *, limit: int, before: str | None = None, sort: str | None = None, **only: Unpack[OperationFilter]
    ) -> tuple[Operation, ...]:
        """Newest first, or as the store sorts them; ``before``: only those after the one with this id.

        :raises NotFound: ``operation.subject_unknown``: nothing is or was called so, as far as its ``tenants`` may know
        """
        with self.world.store.read() as tx:
            operations = tx.operations.list(limit=limit, before=before, sort=sort or "-created_at", **only)
            subject = only.get("subject")
            if subject is not None and not operations:
                _check_subject(tx, subject, only.get("tenants"))
            return operations

    def how_many(self, **only: Unpack[OperationFilter]) -> int:
        """Those that :meth:`list` would have without a limit."""
        with self.world.store.read() as tx:
            return tx.operations.how_many(**only)

    def counts(self) -> dict[tuple[str, str], int]:
        """How many are stored, by kind and state."""
        with self.world.store.read() as tx:
            return tx.operations.counts()

    def watched(self, operation_id: str) -> Watched:
        """As it is now. :raises NotFound: ``operation.unknown``"""
        job = self._job(operation_id)
        return Watched(operation=job.operation, revision=job.revision)

    def revisions(self, operation_ids: Sequence[str]) -> dict[str, int]:
        """Of those that are stored."""
        with self.world.store.read() as tx:
            return tx.operations.revisions(operation_ids)

    def listen(self, operation_id: str, told: Callable[[Watched | None], None]) -> Callable[[], None]:
        """``told`` is called on some thread after each change that this process commits, until the returned is: with
        the operation as it is then, or None when it has to be read."""
        return self.world.store.listen(operation_id, told)

    def cancel(self, operation_id: str) -> Operation:
        """Ask it to stop after the current step and take everything back.

        :raises Conflict: ``operation.finished``, ``operation.not_cancellable``"""
        with self.world.store.begin() as tx:
            operation = tx.operations.get(operation_id).operation
            if operation.state in FINISHED:
                raise Conflict(
                    "operation.finished",
                    f"the operation is {operation.state} already",
                    hint=f"'vgpuctl operation show {operation_id}' tells how it ended",
                )
            if "cancel" not in ways_out(operation):
                raise Conflict(
                    "operation.not_cancellable",
                    f"{operation.kind.replace('_', ' ')} cannot be taken back any more",
                    hint="wait until it has ended",
                )
            if not tx.operations.is_cancelled(operation_id):
                tx.operations.request_cancel(operation_id)
                self._note(tx, "cancel", operation_id)
        self.engine.submit(operation_id)
        return self.get(operation_id)

    def retry(self, operation_id: str) -> Operation:
        """A stuck operation: try again to finish, or to take back, what is left. Of one that a backup has as unfinished
        what became of it is written down.

        :raises Conflict: ``operation.not_stuck``; :raises WorldError: its host could not be asked"""
        if self._is_for_the_record(operation_id):
            return self._record(operation_id, "retry")
        with self.world.store.begin() as tx:
            take_up(tx, _check_stuck(tx.operations.get(operation_id)))
            self._note(tx, "retry", operation_id)
        self.engine.submit(operation_id)
        return self.get(operation_id)

    def abandon(self, operation_id: str) -> Operation:
        """An operation that is stuck or waits for its host: the operator has cleaned up by hand; release what it holds.
        Of one that a backup has as unfinished, what its host shows is not forgotten.

        :raises Conflict: ``operation.not_stuck``, ``operation.vm_moved``"""
        if self._is_for_the_record(operation_id):
            try:
                return self._record(operation_id, "abandon")
            except WorldError:  # what is there all the same is found, and not removed, when it answers
                log.warning("operation %s is abandoned, and its host could not be asked", operation_id)
        note = "abandoned: an operator said that nothing of it remains"
        with self.world.store.begin() as tx:  # one for all of it: a retry comes before it or finds nothing stuck
            job = tx.operations.get(operation_id)
            operation = job.operation if _held_at_rest(tx, job.operation) else _check_stuck(job)
            _check_not_moved(operation)
            definition, remainder = DEFINITIONS.get(operation.kind), operation.remainder
            if definition is not None:
                own = Context.of(self.world, job, lambda _: None, self.world.clock.sleep, lambda: None)
                context = replace(own, within=tx)
                remainder = remainder or definition.remainder(operation, context)  # one that waits has told none
                definition.abandoned(context)
            at, warnings = tx.time.no_earlier(self.world.clock.now()), (*operation.warnings, note)
            tx.operations.update(replace(operation, state="undone", finished_at=at, remainder=(), warnings=warnings))
            tx.audit.append(
                at=self.world.clock.now(),
                actor=actor(),
                action="abandon",
                subject=operation_id,
                outcome="; ".join(remainder) or "nothing was left",
            )
        return self.get(operation_id)

    def _is_for_the_record(self, operation_id: str) -> bool:
        job = self._job(operation_id)
        return job.operation.state == "stuck" and is_restored(job.operation) and not is_about_its_host(job)

    def _record(self, operation_id: str, action: str) -> Operation:
        with self.world.store.read() as tx:
            job = tx.operations.get(operation_id)
            hosts = [tx.hosts.get(name) for name in hosts_of(job)]
        snapshots: dict[str, HostSnapshot] = {}
        for host in hosts:
            try:
                snapshots[host.name] = self.world.link.observe(host)
            except Retryable:
                if not may_be_dead(job, host.name):
                    raise
        with self.world.store.begin() as tx:
            job = tx.operations.get(operation_id)
            _check_stuck(job)
            ended = record_outcome(tx, job, snapshots, self.world.clock.now())
            self._note(tx, action, operation_id)
        return ended

    def _note(self, tx: Transaction, action: str, operation_id: str) -> None:
        at = self.world.clock.now()
        tx.audit.append(at=at, actor=actor(), action=action, subject=operation_id, outcome="accepted")

    def _job(self, operation_id: str) -> Job:
        with self.world.store.read() as tx:
            return tx.operations.get(operation_id)


def _check_subject(tx: Transaction, subject: str, tenants: tuple[str, ...] | None) -> None:
    """Nothing was found: because nothing of it is left to tell, or because there never was such a thing. What is gone
    is in the audit for longer than its operations are kept; that is the operator's to know."""
    newest = tx.operations.list(limit=1, tenants=tenants, subject=subject)
    if newest or (tenants is None and tx.audit.newest(limit=1, subject=subject)):
        return
    things = names_of_things(tx, tenants)
    if subject not in things:
        raise unknown_subject(subject, things)


def _held_at_rest(tx: Transaction, operation: Operation) -> bool:
    """Whether it waits for its host; then none of its attempts begins before this transaction ends."""
    if "abandon" not in ways_out(operation) or not tx.operations.is_newest(operation.id, operation.attempt):
        return False
    wait = tx.operations.get(operation.id).operation.host_wait
    return wait is not None and wait.state == "waiting"


def _check_stuck(job: Job) -> Operation:
    if "retry" not in ways_out(job.operation):
        raise Conflict(
            "operation.not_stuck",
            f"the operation is {job.operation.state}, not stuck",
            hint="only a stuck one is retried; one that waits for its host can be abandoned, too; "
            f"'vgpuctl operation show {job.operation.id}' tells how it stands",
        )
    return job.operation


def _check_not_moved(operation: Operation) -> None:
    """What would be forgotten is a whole VM."""
    if "abandon" not in ways_out(operation):
        raise Conflict(
            "operation.vm_moved",
            "the VM is on the other host alone, so its move is not given up",
            hint=f"'vgpuctl operation retry {operation.id}' lets it go on there",
        )
