# SPDX-License-Identifier: Apache-2.0
"""Offerings that operators added."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select

from orchestrator.core.offerings.offering import Offering
from orchestrator.store.events import Events
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import offerings

_OFFERING: Final = TypeAdapter(Offering)
_OFFERINGS: Final = Precompiled(select(offerings.c.document).order_by(offerings.c.name))


class Offerings:
    """Those that the site added."""

    def __init__(self, connection: Statements, events: Events) -> None:
        self._db = connection
        self._events = events

    def list(self) -> tuple[Offering, ...]:
        """By name."""
        return tuple(_OFFERING.validate_python(document) for document in self._db.execute(_OFFERINGS).scalars())

    def put(self, offering: Offering) -> None:
        """Replaces the one of that name."""
        replaced = self._delete(offering.name)
        self._events.note("offering", offering.name, "changed" if replaced else "created")
        self._db.execute(insert(offerings).values(name=offering.name, document=asdict(offering)))

    def remove(self, name: str) -> None:
        """Gone already is fine."""
        if self._delete(name):
            self._events.note("offering", name, "removed")

    def _delete(self, name: str) -> bool:
        return self._db.execute(delete(offerings).where(offerings.c.name == name)).rowcount > 0
