# SPDX-License-Identifier: Apache-2.0
"""Bodies about locked drivers. What is asked has the form of the file."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.drivers.check import ComparedDriver
from orchestrator.core.drivers.lock import DriverLock, Locked


class LockedAnswer(CopiedAnswer, copies=Locked):
    """One version."""


class LockGroupAnswer(AnswerBody):
    """Hosts that differ from the site."""

    name: str
    """What it is called."""
    labels: str
    """Selector of the hosts; the first group that picks a host counts."""
    locked: tuple[LockedAnswer, ...]
    """Versions that it has to have."""


class DriverLockAnswer(AnswerBody):
    """Versions for all hosts, and for groups of them."""

    site: tuple[LockedAnswer, ...]
    """For all hosts."""
    groups: tuple[LockGroupAnswer, ...]
    """Hosts that differ from the site; the first that picks a host counts."""

    @classmethod
    def of(cls, lock: DriverLock) -> DriverLockAnswer:
        return cls(
            site=tuple(map(LockedAnswer.of, lock.site)),
            groups=tuple(
                LockGroupAnswer(
                    name=group.name, labels=group.selector, locked=tuple(map(LockedAnswer.of, group.locked))
                )
                for group in lock.groups
            ),
        )


class DriverRowAnswer(CopiedAnswer, copies=ComparedDriver):
    """One thing that was compared."""


class DriverCheckAnswer(AnswerBody):
    """All that was compared."""

    rows: tuple[DriverRowAnswer, ...]
    """One for each thing that was looked at."""

    @classmethod
    def of(cls, rows: Iterable[ComparedDriver]) -> DriverCheckAnswer:
        return cls(rows=tuple(map(DriverRowAnswer.of, rows)))
