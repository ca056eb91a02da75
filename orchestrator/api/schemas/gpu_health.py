# SPDX-License-Identifier: Apache-2.0
"""Bodies about the health of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, moment_or_none
from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.gpu.health import GpuSignal, Remedy, Scope, meaning_of, state_of
from orchestrator.core.gpu.health_states import Breaker, GpuHealth, HealthState
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.services.hosts.gpu_health import KnownHealth, PoolHealth


class GpuReasonBody(StrictForm, example={"reason": "fan 3 is loud"}):
    """An operator's word on a GPU."""

    reason: str = Field(min_length=1, max_length=180, pattern=LINE_PATTERN)
    """Why, for people."""


class GpuSignalAnswer(AnswerBody, copies=GpuSignal, without={"pids"}):
    """One thing that is told of a GPU."""

    at: datetime | None
    """Of the newest, by its host's clock, of a tenant's word by ours; null: a state, which lasts."""
    programs: int
    """How many processes of its host met it, three at most."""
    concerns: Scope
    """vm, gpu or fabric."""
    helps: Remedy
    """What is to be done about it."""
    state: str
    """What it brings the GPU into by itself."""
    waived: bool
    """An operator has said that it counts no more."""

    @classmethod
    def of(cls, signal: GpuSignal, health: GpuHealth) -> GpuSignalAnswer:
        meaning = meaning_of(signal, shipped().signal_meanings)
        return cls.copied(
            signal, at=moment_or_none(signal.at or None), programs=len(signal.pids), concerns=meaning.scope,
            helps=meaning.remedy, state=state_of(meaning), waived=(signal.name, signal.at) in health.waived,
        )  # fmt: skip


class GpuHealthAnswer(
    AnswerBody,
    copies=GpuHealth,
    without={"falls", "noted", "waived", "mends", "spared", "words", "failed_boot", "joining_since", "functions"},
):
    """Health of one GPU, or of one of its virtual functions."""

    host: str
    """Name of the host."""
    gpu: str
    """PCI address, of the GPU or of the virtual function."""
    function_of: str | None
    """PCI address of the GPU whose virtual function it is; null: it is a GPU."""
    since: datetime | None
    """In that state; null: always."""
    clean_since: datetime | None
    """Without a new fault since then; null: one lasts, or there was none."""
    became_unfit: int
    """How often in the last week."""
    signals: tuple[GpuSignalAnswer, ...]
    """All that its host tells of it now, and tenants in the last week; only of a GPU that was asked for alone."""

    @classmethod
    def of(cls, known: KnownHealth) -> GpuHealthAnswer:
        health = known.health
        return cls.copied(
            health, host=known.host, gpu=known.gpu, function_of=known.function_of,
            since=moment_or_none(health.since or None), clean_since=moment_or_none(health.clean_since),
            became_unfit=len(health.falls),
            signals=tuple(GpuSignalAnswer.of(signal, health) for signal in known.signals),
        )  # fmt: skip


class HealthBreakerAnswer(AnswerBody, copies=Breaker, without={"reset"}):
    """Whether rules may close GPUs."""

    opened: datetime | None
    """Since then they do not, until a person resets it; null: they may."""

    @classmethod
    def of(cls, breaker: Breaker) -> HealthBreakerAnswer:
        return cls.copied(breaker, opened=moment_or_none(breaker.opened))


class PoolHealthAnswer(AnswerBody):
    """Health of all managed GPUs, and of their virtual functions."""

    breaker: HealthBreakerAnswer
    """Whether rules may close GPUs."""
    counts: dict[HealthState, int]
    """How many GPUs are in each state."""
    gpus: tuple[GpuHealthAnswer, ...]
    """Those that are not healthy, and virtual functions that are not: a page of them."""

    @classmethod
    def of(cls, pool: PoolHealth, gpus: Sequence[GpuHealthAnswer]) -> PoolHealthAnswer:
        return cls(
            breaker=HealthBreakerAnswer.of(pool.breaker),
            counts=dict(pool.counts),
            gpus=tuple(gpus),
        )
