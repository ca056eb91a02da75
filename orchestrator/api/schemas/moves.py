# SPDX-License-Identifier: Apache-2.0
"""Bodies about where a VM may move, and of its move."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Name
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.moves.verdicts import HostMoves, MoveLimit, MoveVerdict
from orchestrator.core.units import MIB
from orchestrator.services.messages import MovePlan, MoveVm

MAX_BANDWIDTH_MIB: Final = 1024 * 1024


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


class MoveVmBody(StrictForm, example={"host": "gpu-2", "bandwidth_mib": 200}):
    """Where a VM goes, and how."""

    host: Name | None = None
    """Null: where placement puts it."""
    bandwidth_mib: int | None = Field(default=None, ge=1, le=MAX_BANDWIDTH_MIB)
    """MiB of its disk that are copied in a second at most; null: as many as go."""
    cold: bool = False
    """One that runs is shut down for the move, and started on the other host."""
    or_cold: bool = False
    """So is one that may not move while it runs, or whose move has failed three times."""
    force: bool = False
    """Of one that runs: whenever its tenant lets its VMs be stopped."""

    def to_request(self, name: str, tenant: str) -> MoveVm:
        limit = None if self.bandwidth_mib is None else self.bandwidth_mib * MIB
        return MoveVm(
            name=name, tenant=tenant, host=self.host, max_bytes_per_s=limit,
            cold=self.cold, or_cold=self.or_cold, force=self.force,
        )  # fmt: skip


class MovePlanAnswer(AnswerBody):
    """What a move would do; nothing is stored."""

    copied_from = (MovePlan,)

    source: str
    target: str
    gpus: tuple[str, ...]
    why: str
    disk_bytes: int
    copy_low_s: float | None
    copy_high_s: float | None
    live: bool
    live_low_s: float | None
    live_high_s: float | None
    pause_low_s: float | None
    pause_high_s: float | None
