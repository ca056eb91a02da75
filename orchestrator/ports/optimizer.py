# SPDX-License-Identifier: Apache-2.0
"""Somebody who solves whole-number programs: an extra that need not be installed."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.whole_program import Answer, WholeProgram


class Optimizer(Protocol):
    def __call__(self, program: WholeProgram, seconds: float) -> Answer | None:
        """The values that gain most, or the best found in ``seconds``; None when none were found in time."""
