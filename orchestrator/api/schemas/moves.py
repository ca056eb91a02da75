# SPDX-License-Identifier: Apache-2.0
"""Bodies about where a VM may move."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.moves.verdicts import HostMoves, MoveLimit, MoveVerdict


class MoveLimitAnswer(CopiedAnswer, copies=MoveLimit):
    """Why a VM may not move in some way."""


class MoveVerdictAnswer(CopiedAnswer, copies=MoveVerdict):
    """Of one way of moving."""

    legal: bool
    """Whether nothing rules it out."""
    limits: tuple[MoveLimitAnswer, ...]


class HostMovesAnswer(CopiedAnswer, copies=HostMoves):
    """Whether a VM may move to a host, in each way."""

    verdicts: tuple[MoveVerdictAnswer, ...]


class MovesAnswer(AnswerBody):
    """Where a VM may move, and what keeps it from it. A tenant is told of the VM itself alone."""

    restricted: bool
    """As a tenant may know it: no host is named, and none judged."""
    own: tuple[MoveVerdictAnswer, ...]
    """What of the VM itself rules each way out, wherever it would go."""
    hosts: tuple[HostMovesAnswer, ...]
    """A page of hosts, by name."""

    @classmethod
    def of(cls, own: Iterable[MoveVerdict], hosts: Iterable[HostMoves] | None) -> MovesAnswer:
        """``hosts`` None: they are not for the reader."""
        return cls(
            restricted=hosts is None,
            own=tuple(map(MoveVerdictAnswer.of, own)),
            hosts=tuple(map(HostMovesAnswer.of, hosts or ())),
        )
