# SPDX-License-Identifier: Apache-2.0
"""Differences that were noticed between what should be and what is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.core.diff.finding import Finding, StoredFinding


class Findings(Protocol):
    def record(self, host: str, findings: Sequence[Finding], *, at: float, complete: bool) -> tuple[Finding, ...]:
        """What was found at ``at``; returns those that are new. What is not among them is cleared,
        unless the observation was not ``complete``: then only what is about the host itself is."""

    def forget(self, *, cleared_before: float) -> None:
        """Those that stood."""

    def list(
        self, *, host: str | None = None, code: str | None = None, cleared: bool = False
    ) -> tuple[StoredFinding, ...]:
        """Those that stand, or with ``cleared`` also those that stood; by host, code and subject."""

    def set_operation(self, finding: Finding, operation_id: str) -> None:
        """The operation that repairs it."""
