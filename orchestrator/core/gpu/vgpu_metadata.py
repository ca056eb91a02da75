# SPDX-License-Identifier: Apache-2.0
"""What a driver says of a vGPU and of a GPU for its own question whether the one goes on on the other, and the answer.
Nobody but the driver looks into it (nvmlVgpuMetadata_t, nvmlVgpuPgpuMetadata_t): it is kept as base64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from orchestrator.core.errors import Unknown

MAX_METADATA_BYTES: Final = 1536
"""NVML's have about 470."""
MAX_METADATA: Final = MAX_METADATA_BYTES // 3 * 4
"""The same as characters of base64."""
MAX_QUESTIONS: Final = 64
"""At once."""
_BITS: Final = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class RunningVgpu:
    """A vGPU that a running VM has open."""

    vm: str
    """UUID of the VM's domain, which of ours is the VM's id."""
    metadata: str


class VgpuQuestion(NamedTuple):
    """Both in base64, each as its own driver said it."""

    vgpu: str
    gpu: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """NVML's answer."""

    states: int
    """Bits of nvmlVgpuVmCompatibility_t: in which states the vGPU goes there."""
    limits: int
    """Bits of nvmlVgpuPgpuCompatibilityLimitCode_t: what keeps it from the others."""


Answers = tuple[Compatibility | None, ...]
"""One to each question. None: the driver has no such call."""


def answers_to_dict(answers: Iterable[Compatibility | None]) -> dict[str, object]:
    return {"answers": [None if item is None else [item.states, item.limits] for item in answers]}


def answers_from_dict(message: dict[str, object], questions: Sequence[VgpuQuestion]) -> Answers:
    """:raises Unknown: ``agent.protocol``"""
    answers = message.get("answers")
    if not isinstance(answers, list) or len(answers) != len(questions) or not all(map(_is_answer, answers)):
        raise Unknown("agent.protocol", "the agent's answer about vGPUs that move is none")
    return tuple(None if item is None else Compatibility(*item) for item in answers)


def _is_answer(item: object) -> bool:
    if item is None:
        return True
    return isinstance(item, list) and len(item) == 2 and all(type(bits) is int and 0 <= bits <= _BITS for bits in item)
