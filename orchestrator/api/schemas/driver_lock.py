# SPDX-License-Identifier: Apache-2.0
"""Bodies about locked drivers. What is asked has the form of the file."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.drivers.check import ComparedDriver, Verdict
from orchestrator.core.drivers.lock import Component, DriverLock


class LockedAnswer(CopiedAnswer):
    """One version."""

    component: Component
    version: str
    sha256: str | None = Field(description="Of the bundle that it is installed from; null: any of that version")


class LockGroupAnswer(AnswerBody):
    """Hosts that differ from the site."""

    name: str
    labels: str = Field(description="Selector of the hosts; the first group that picks a host counts")
    locked: tuple[LockedAnswer, ...]


class DriverLockAnswer(AnswerBody):
    """Versions for all hosts, and for groups of them."""

    site: tuple[LockedAnswer, ...]
    groups: tuple[LockGroupAnswer, ...]

    @classmethod
    def of(cls, lock: DriverLock) -> DriverLockAnswer:
        return cls(
            site=tuple(map(LockedAnswer.of, lock.site)),
            groups=tuple(
                LockGroupAnswer(name=one.name, labels=one.selector, locked=tuple(map(LockedAnswer.of, one.locked)))
                for one in lock.groups
            ),
        )


class DriverRowAnswer(CopiedAnswer):
    """One thing that was compared."""

    subject: str
    part: str
    wanted: str | None = Field(description="null: not locked")
    observed: str | None = Field(description="null: nobody knows")
    verdict: Verdict
    reason: str


class DriverCheckAnswer(AnswerBody):
    """All that was compared."""

    rows: tuple[DriverRowAnswer, ...]

    @classmethod
    def of(cls, rows: Iterable[ComparedDriver]) -> DriverCheckAnswer:
        return cls(rows=tuple(map(DriverRowAnswer.of, rows)))
