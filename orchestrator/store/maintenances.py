# SPDX-License-Identifier: Apache-2.0
"""Declared maintenances, and what watchers and tenants are told when one changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import Select, String, cast, exists, false, func, insert, or_, select, update

from orchestrator.core.maintenance.maintenance import ENDED, UNDER_WAY, HostTurn, Maintenance, is_over, turn_on
from orchestrator.core.vms.lease import show_moment
from orchestrator.store.events import Events
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import function_claims, maintenances, observations, slot_claims, vms

_MAINTENANCE: Final = TypeAdapter(Maintenance)
_NEWEST_FIRST: Final = select(maintenances.c.document).order_by(maintenances.c.created_at.desc())
_ACTIVE: Final = Precompiled(_NEWEST_FIRST.where(maintenances.c.active))


class Maintenances:
    """Each with all of its hosts."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def add(self, maintenance: Maintenance) -> None:
        self._db.execute(insert(maintenances).values({**_values(maintenance), "id": maintenance.id}))
        self._note(maintenance, "created")
        self._tell(maintenance, "planned", (turn for turn in maintenance.hosts if turn.phase == "waiting"))

    def put(self, maintenance: Maintenance) -> None:
        """In the place of the one with its id."""
        before = self.find(maintenance.id)
        if before is not None:
            self._note_changes(before, maintenance)
            if maintenance.overran and (before.state, before.overran) != (maintenance.state, maintenance.overran):
                self._db.execute(update(observations).values(judged=None))  # each of its hosts has a finding, or none
        self._db.execute(update(maintenances).where(maintenances.c.id == maintenance.id).values(_values(maintenance)))

    def _note_changes(self, before: Maintenance, maintenance: Maintenance) -> None:
        if before.state != maintenance.state:
            self._note(maintenance, "state")
        if maintenance.overran and not before.overran:
            self._note(maintenance, "overran")
            self._tell(maintenance, "overran", (turn for turn in maintenance.hosts if turn.phase not in ENDED))
        turns = {turn.host: turn for turn in before.hosts}
        for turn in maintenance.hosts:
            was = turns[turn.host]
            if was.phase != turn.phase:
                self._note(maintenance, "host", host=turn.host, phase=turn.phase)
            if was.phase not in UNDER_WAY and turn.phase in UNDER_WAY:
                self._tell(maintenance, "began", [turn])
            elif was.phase in UNDER_WAY and turn.phase not in UNDER_WAY:
                moved = maintenance.policy == "move"
                also = self._events.tenants_of("maintenance", "began", maintenance.id) if moved else frozenset[str]()
                self._tell(maintenance, "ended", [turn], also)
        if before.state != maintenance.state == "cancelled":
            left = (turn for turn in maintenance.hosts if turn.phase in {"waiting", "emptying"})
            self._tell(maintenance, "cancelled", left)

    def _note(self, maintenance: Maintenance, change: str, **more: str) -> None:
        about = {"subject": maintenance.id, "state": maintenance.state, **more}
        self._events.note("maintenance", maintenance.title, change, **about)

    def _tell(self, maintenance: Maintenance, change: str, turns: Iterable[HostTurn], also: Iterable[str] = ()) -> None:
        """Each tenant that has VMs there, once. ``also``: tenants whose VMs have left."""
        hosts = [turn.host for turn in turns]
        on = select(vms.c.tenant, vms.c.host, func.count()).group_by(vms.c.tenant, vms.c.host)
        counts, wanted = Counter[str](), frozenset(hosts)
        if maintenance.act == "defragment":  # the others on these hosts stay
            counts.update(move.name.partition("/")[0] for move in maintenance.moves if move.source in wanted)
            on = on.where(false())
        if maintenance.gpu is not None:
            of_gpu = exists().where(slot_claims.c.vm == vms.c.id, slot_claims.c.gpu == maintenance.gpu)
            is_function = function_claims.c.function == maintenance.gpu
            on = on.where(or_(of_gpu, exists().where(function_claims.c.vm == vms.c.id, is_function)))
        for tenant, host, count in self._db.execute(on.where(vms.c.host == hosts[0]) if len(hosts) == 1 else on):
            counts[tenant] += count if host in wanted else 0
        planned = {
            "act": maintenance.act,
            "reason": maintenance.reason or None,
            "starts_at": show_moment(maintenance.starts_at),
            "ends_by": None if maintenance.ends_by is None else show_moment(maintenance.ends_by),
        }
        for tenant in sorted({*+counts, *also}):
            self._events.note(
                "maintenance", maintenance.title, change, tenant=tenant, subject=maintenance.id,
                host=hosts[0] if len(hosts) == 1 else None, vms=str(counts[tenant]), **planned,
            )  # fmt: skip

    def find(self, maintenance_id: str) -> Maintenance | None:
        return self._first(_NEWEST_FIRST.where(maintenances.c.id == maintenance_id))

    def beginning(self, text: str) -> tuple[Maintenance, ...]:
        """Those whose ids begin so, at most two."""
        matches = _NEWEST_FIRST.where(maintenances.c.id.startswith(text, autoescape=True)).limit(2)
        return tuple(map(_MAINTENANCE.validate_python, self._db.execute(matches).scalars()))

    def newest(self) -> Maintenance | None:
        """The one that was declared last."""
        return self._first(_NEWEST_FIRST)

    def last_on(self, host: str) -> tuple[Maintenance, HostTurn] | None:
        """The one that is under way on that host, else the newest whose turn came there; no defragmentation."""
        if (under_way := turn_on(self.active(), host)) is not None:
            return under_way
        named = _NEWEST_FIRST.where(cast(maintenances.c.document, String).contains(f'"{host}"'))  # as a host, or else
        documents = map(_MAINTENANCE.validate_python, self._db.execute(named).scalars())
        turns = ((its, turn) for its in documents if not its.serves_on for turn in its.hosts)
        return next(((its, turn) for its, turn in turns if turn.host == host and turn.phase != "waiting"), None)

    def active(self) -> tuple[Maintenance, ...]:
        """Those that are not over, the newest first; cheap while there is none."""
        return tuple(_MAINTENANCE.validate_python(document) for document in self._db.execute(_ACTIVE).scalars())

    def list(self, *, most: int) -> tuple[Maintenance, ...]:
        """The newest so many, the newest first."""
        documents = self._db.execute(_NEWEST_FIRST.limit(most)).scalars()
        return tuple(map(_MAINTENANCE.validate_python, documents))

    def _first(self, query: Select[tuple[object]]) -> Maintenance | None:
        document = self._db.execute(query.limit(1)).scalar_one_or_none()
        return None if document is None else _MAINTENANCE.validate_python(document)


def _values(maintenance: Maintenance) -> dict[str, object]:
    return {
        "created_at": maintenance.created_at,
        "active": not is_over(maintenance),
        "document": asdict(maintenance),
    }
