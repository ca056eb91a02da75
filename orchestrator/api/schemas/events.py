# SPDX-License-Identifier: Apache-2.0
"""Events as the API tells them."""

from __future__ import annotations

from typing import Literal

from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.core.event import EventIds, FleetChange, FleetEvent, GapReason, Noun


class EventAnswer(AnswerBody):
    """One change of one thing, as it was committed."""

    copied_from = (FleetChange, FleetEvent)

    id: str
    """Says where to go on; nothing else can be read from it."""
    at: Moment
    noun: Noun
    name: str
    change: str
    tenant: str | None
    host: str | None
    """Name of the host, for those who may know of it."""
    subject: str | None
    state: str | None
    details: dict[str, str]

    @classmethod
    def of(cls, event: FleetEvent, ids: EventIds, *, watching: bool) -> EventAnswer:
        """``watching``: the reader may know what happens on which host."""
        change = event.change
        host = change.host if watching else None
        return cls.copied(change, id=ids.of(event.number), at=event.at, host=host, details=dict(change.details))


class GapAnswer(AnswerBody):
    """Something was not told: what the reader knows must be read anew."""

    noun: Literal["gap"] = "gap"
    """Stands where events have theirs."""
    reason: GapReason
    """forgotten: it is no longer kept; slow: the reader took too slowly what it was sent, and goes on where it was."""
