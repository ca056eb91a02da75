# SPDX-License-Identifier: Apache-2.0
"""GPUs on watch are taken last: where the best place is on one, the engine asks again with this need, and leaves it
there where nothing else is found. No VM has it, as it refuses nothing. Those that nothing may be put on are unusable,
whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.gpu.health_states import GpuHealth
from orchestrator.core.placement.rules.rule import Fact, GpuInUse, Need


@dataclass(frozen=True, slots=True)
class OnWatch(Fact):
    """The GPU had a fault a short time ago, or has one that it serves on with."""


@dataclass(frozen=True, slots=True)
class SparesWatched(Need):
    """Its GPUs are not on watch."""

    codes = ("gpu.on_watch",)

    @property
    def judges_empty_gpus(self) -> bool:
        return True

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if OnWatch() in gpu.facts:
            yield "gpu.on_watch"

    def message(self, code: str) -> str:
        return "the GPU is on watch, and others will do"


def facts_of(health: GpuHealth | None) -> tuple[Fact, ...]:
    return (OnWatch(),) if health is not None and health.state == "watch" else ()
