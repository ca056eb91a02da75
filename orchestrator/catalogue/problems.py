# SPDX-License-Identifier: Apache-2.0
"""Mistakes in catalogue and offering files, with the place where each was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput, Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake. ``line`` counts from 1; 0: the file as a whole."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.reason}"


def invalid(problems: Sequence[Problem]) -> InvalidInput:
    """The error for a non-empty list of problems; its reasons carry them all."""
    first, more = problems[0], len(problems) - 1
    return InvalidInput(
        "catalogue.invalid",
        f"{first}" + (f" (and {more} more)" if more else ""),
        hint="correct the file; 'vgpuctl profile validate FILE' lists every mistake",
        reasons=tuple(
            Reason(code="catalogue.invalid", message=p.reason, subjects=(f"{p.file}:{p.line}",)) for p in problems
        ),
    )
