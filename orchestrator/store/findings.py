# SPDX-License-Identifier: Apache-2.0
"""Findings with their history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, and_, delete, insert, select, update
from sqlalchemy.sql.functions import count

from orchestrator.core.diff.finding import Finding, Repair, Severity, StoredFinding
from orchestrator.core.diff.health import GPU_FAULT
from orchestrator.core.errors import InvalidInput
from orchestrator.core.wire import action_from_dict, action_to_dict
from orchestrator.store.events import Events
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import findings, vms

_OF_HOST = "host."
"""Codes of findings that are about the host itself."""
_OF_GPU: Final = re.compile(r"gpu\.(?:fabric_)?fault")
"""Codes of what a GPU's driver says of the GPU and of its links."""
_FIELDS = ("host", "code", "subject", "vm", "severity", "whose", "wanted", "observed")
"""Stored as they are."""


class Findings:
    """Differences that were noticed between what should be and what is."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def record(self, host: str, noticed: Sequence[Finding], *, at: float, complete: bool) -> tuple[Finding, ...]:
        """What was noticed at ``at``; returns those that are new."""
        known = {stored.finding.key: stored for stored in self.list(host=host, cleared=True)}
        fresh = []
        for finding in {finding.key: finding for finding in noticed}.values():
            before = known.pop(finding.key, None)
            if before is None:
                self._db.execute(insert(findings).values(**_values(finding), first_seen=at, last_seen=at))
            elif before.cleared_at is not None:
                again = {**_values(finding), "first_seen": at, "last_seen": at, "cleared_at": None, "operation": None}
                self._db.execute(update(findings).where(_is(finding)).values(**again))
            else:
                self._db.execute(update(findings).where(_is(finding)).values(**_values(finding), last_seen=at))
                continue
            fresh.append(finding)
            self._note(finding, "opened")
        for gone in known.values():
            if gone.cleared_at is None and (complete or gone.finding.code.startswith(_OF_HOST)):
                self._db.execute(update(findings).where(_is(gone.finding)).values(cleared_at=at))
                self._note(gone.finding, "cleared")
        return tuple(fresh)

    def _note(self, finding: Finding, change: str) -> None:
        """A fault of a GPU is a change of the GPU's health as well; of a VM's GPU its tenant is told."""
        kinds = {"code": finding.code, "severity": finding.severity}
        self._events.note("finding", finding.subject, change, host=finding.host, subject=finding.vm, **kinds)
        health = "fault" if change == "opened" else "well"
        if _OF_GPU.fullmatch(finding.code):
            gpu = f"{finding.host}/{finding.subject.removeprefix('GPU ')}"
            self._events.note("gpu", gpu, health, host=finding.host, **kinds)
        elif finding.code == GPU_FAULT and finding.vm is not None:
            its = select(vms.c.tenant, vms.c.name).where(vms.c.id == finding.vm)
            for vm in self._db.execute(its):
                change = f"gpu_{health}"
                self._events.note("vm", vm.name, change, tenant=vm.tenant, host=finding.host, subject=finding.vm)

    def forget(self, *, cleared_before: float) -> None:
        """Those that stood."""
        self._db.execute(delete(findings).where(findings.c.cleared_at < cleared_before))

    def list(
        self, *, host: str | None = None, code: str | None = None, cleared: bool = False
    ) -> tuple[StoredFinding, ...]:
        """By host, code and subject."""
        query = select(findings).order_by(findings.c.host, findings.c.code, findings.c.subject)
        if host is not None:
            query = query.where(findings.c.host == host)
        if code is not None:
            query = query.where(findings.c.code == code)
        if not cleared:
            query = query.where(findings.c.cleared_at.is_(None))
        return tuple(_stored(row) for row in self._db.execute(query))

    def counts(self) -> dict[str, int]:
        """How many stand, by code."""
        return self._counted(findings.c.code)

    def by_severity(self) -> dict[Severity, int]:
        """How many stand, by severity."""
        return self._counted(findings.c.severity)

    def _counted(self, column: Column[Any]) -> dict[Any, int]:
        standing = select(column, count().label("standing")).where(findings.c.cleared_at.is_(None)).group_by(column)
        return {row[0]: row.standing for row in self._db.execute(standing)}

    def set_operation(self, finding: Finding, operation_id: str) -> None:
        self._db.execute(update(findings).where(_is(finding)).values(operation=operation_id))


def _is(finding: Finding) -> ColumnElement[bool]:
    host, code, subject = finding.key
    return and_(findings.c.host == host, findings.c.code == code, findings.c.subject == subject)


def _values(finding: Finding) -> dict[str, Any]:
    repair = finding.repair
    document = repair and {
        "kind": repair.kind,
        "automatic": repair.automatic,
        "actions": [action_to_dict(action) for action in repair.actions],
    }
    return {**{name: getattr(finding, name) for name in _FIELDS}, "reason": finding.reason, "repair": document}


def _stored(row: AnyRow) -> StoredFinding:
    repair, reason = _repair(row.repair), row.reason
    if row.repair and repair is None:
        reason = "another version of vgpuctl wrote down how to repair it: it is found again"
    finding = Finding(**{name: getattr(row, name) for name in _FIELDS}, repair=repair, reason=reason)
    history = {name: getattr(row, name) for name in ("first_seen", "last_seen", "cleared_at", "operation")}
    return StoredFinding(finding=finding, **history)


def _repair(document: Any) -> Repair | None:
    """None: there is none, or it holds an action that this version does not know."""
    if not document:
        return None
    try:
        actions = tuple(action_from_dict(action) for action in document["actions"])
    except InvalidInput:
        return None
    return Repair(kind=document["kind"], automatic=document["automatic"], actions=actions)
