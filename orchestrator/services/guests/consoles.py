# SPDX-License-Identifier: Apache-2.0
"""Consoles in browsers: a ticket opens one, one of those who are at it writes, the others watch."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import Conflict, Denied
from orchestrator.core.vms.console_session import (
    KEPT_S,
    MAX_OF_ACTOR,
    OPENED_WITHIN_S,
    RENEWED_S,
    TICKET_S,
    ConsoleKind,
    ConsoleSession,
    binding,
    session_id,
    writer_of,
)
from orchestrator.ports.clock import Clock
from orchestrator.ports.host import ByteStream
from orchestrator.services.acting import actor
from orchestrator.services.guests.guests import GuestAccessService
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_TICKET_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True)
class AtConsole:
    """Who is at one, as each of them is told."""

    you_write: bool
    writer: str | None
    """None: nobody writes."""
    watching: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ConsoleService:
    """Over all controllers: what is open stands in the database. Who may ask is the API's to say."""

    store: Store
    access: GuestAccessService
    clock: Clock

    def give(self, tenant: str, name: str, kind: ConsoleKind, credential: str, origin: str | None) -> tuple[str, float]:
        """A ticket and when it is over, in seconds since the epoch. Whoever shows it shows the same credential.

        :raises NotFound: ``vm.unknown``; :raises Conflict: ``vm.not_running``, ``console.too_many``"""
        vm, now, ticket = self.access.running(tenant, name), self.clock.now(), secrets.token_urlsafe(_TICKET_BYTES)
        session = ConsoleSession(
            id=session_id(ticket), vm=vm.id, kind=kind, actor=actor(), bound=binding(credential, origin),
            until=now + TICKET_S,
        )  # fmt: skip
        with self.store.begin() as tx:
            tx.consoles.forget_over(now)
            if tx.consoles.count_of(session.actor, now) >= MAX_OF_ACTOR:
                raise Conflict(
                    "console.too_many",
                    f"you have {MAX_OF_ACTOR} consoles open already",
                    hint=f"close one that is no longer needed; one that was cut counts for another {KEPT_S:.0f} s",
                )
            tx.consoles.add(session)
        return ticket, session.until

    def use(
        self, ticket: str, tenant: str, name: str, kind: ConsoleKind, credential: str, origin: str | None
    ) -> ConsoleSession:
        """What was given for it; it is good once, also when it is shown by the wrong one.

        :raises Denied: ``console.ticket_refused``; :raises Conflict: ``vm.not_running``"""
        vm, now = self.access.running(tenant, name), self.clock.now()
        with self.store.begin() as tx:
            session = tx.consoles.use(session_id(ticket), now, now + OPENED_WITHIN_S)
            if session is not None and (session.vm, session.kind, session.bound) == (
                vm.id, kind, binding(credential, origin),
            ):  # fmt: skip
                if writer_of(tx.consoles.at(vm.id, kind, now)) is None:
                    tx.consoles.claim(session.id, now)
                return session
            if session is not None:
                tx.consoles.remove(session.id)
        raise Denied(
            "console.ticket_refused",
            "this ticket was used or is over, or is another's: another login, VM, kind of console or page",
            hint=f"ask for a new one and use it within {TICKET_S:.0f} s",
        )

    def open(self, tenant: str, session: ConsoleSession) -> ByteStream:
        """:raises Conflict: ``vm.not_running``, ``vm.no_display``"""
        way = self.access.open_console if session.kind == "serial" else self.access.open_display
        return way(tenant, session.vm)

    def at(self, tenant: str, session: ConsoleSession) -> AtConsole:
        """Who is there now; the session goes on. :raises Conflict: ``vm.not_running``, ``console.over``"""
        self.access.running(tenant, session.vm)
        now = self.clock.now()
        with self.store.read() as tx:
            others = tx.consoles.at(session.vm, session.kind, now)
        known = next((other for other in others if other.id == session.id), None)
        if known is None:
            raise Conflict("console.over", "nobody kept this console open for too long", hint="open it again")
        if known.until < now + KEPT_S - RENEWED_S:
            with self.store.begin() as tx:
                tx.consoles.renew(session.id, now + KEPT_S)
        writer = writer_of(others)
        return AtConsole(
            you_write=writer is not None and writer.id == session.id,
            writer=None if writer is None else writer.actor,
            watching=tuple(other.actor for other in others if writer is None or other.id != writer.id),
        )

    def take_over(self, session: ConsoleSession) -> None:
        """From now on its keys reach the guest, and nobody else's."""
        with self.store.begin() as tx:
            tx.consoles.claim(session.id, self.clock.now())
            self._note(tx, session, "take_over", "done")

    def leave(self, session: ConsoleSession, why: str) -> None:
        """It is over. How long it was open is on record; ``why``: a code."""
        with self.store.begin() as tx:
            tx.consoles.remove(session.id)
            lasted_s = self.clock.now() - (session.opened_at or self.clock.now())
            self._note(tx, session, "close", f"{why} after {lasted_s:.0f} s")

    def _note(self, tx: Transaction, session: ConsoleSession, what: str, outcome: str) -> None:
        vm, action = tx.vms.find_id(session.vm), f"{what}_{'console' if session.kind == 'serial' else 'display'}"
        subject = session.vm if vm is None else vm.full_name
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome=outcome)
