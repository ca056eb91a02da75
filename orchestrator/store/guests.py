# SPDX-License-Identifier: Apache-2.0
"""What was put into guests. What an older version has not written is as if nobody had looked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.guest.guest import GuestRecord, RoleResult
from orchestrator.store.statements import AnyRow, InClause, Statements
from orchestrator.store.tables import guests, vms

_RESULTS: Final = TypeAdapter(tuple[RoleResult, ...])
_FACTS: Final = TypeAdapter(GuestFacts)
_ON_HOSTS: Final = InClause(
    lambda hosts: select(guests.c.vm, guests.c.document).join(vms, vms.c.id == guests.c.vm).where(vms.c.host.in_(hosts))
)


class GuestRecords:
    """What was put into guests."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def get(self, vm: str) -> GuestRecord:
        """An empty one when nothing is known of it."""
        row = self._db.execute(select(guests).where(guests.c.vm == vm)).one_or_none()
        if row is None:
            return GuestRecord(vm=vm, host_key=None)
        return _record(row)

    def facts(self, hosts: Collection[str]) -> dict[str, GuestFacts]:
        """What is known of the guests of VMs on these hosts, by VM."""
        rows = self._db.execute(*_ON_HOSTS(hosts))
        return {row.vm: _FACTS.validate_python(row.document["facts"]) for row in rows}

    def put(self, record: GuestRecord) -> None:
        """In the place of the one that was there. The VM may have been deleted meanwhile."""
        document = {"results": [asdict(result) for result in record.results], "facts": asdict(record.facts)}
        self._db.execute(delete(guests).where(guests.c.vm == record.vm))
        if self._db.execute(select(vms.c.id).where(vms.c.id == record.vm)).one_or_none() is not None:
            values = {"vm": record.vm, "host_key": record.host_key, "document": document}
            self._db.execute(insert(guests).values(values))


def _record(row: AnyRow) -> GuestRecord:
    document: dict[str, Any] = row.document
    return GuestRecord(
        vm=row.vm,
        host_key=row.host_key,
        results=_RESULTS.validate_python(document["results"]),
        facts=_FACTS.validate_python(document["facts"]),
    )
