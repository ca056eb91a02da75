# SPDX-License-Identifier: Apache-2.0
"""Operations: watching them, and the ways out when one is stuck."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.operation import Operation
from orchestrator.services.messages import Watched


class OperationService(Protocol):
    def get(self, operation_id: str) -> Operation:
        """:raises NotFound: ``operation.unknown``"""

    def list(self, *, unfinished: bool, limit: int) -> tuple[Operation, ...]:
        """Newest first."""

    def wait(self, operation_id: str, *, timeout_s: float, since: int) -> Watched:
        """The operation as soon as its revision is above ``since``, or as it is after ``timeout_s``."""

    def cancel(self, operation_id: str) -> Operation:
        """Ask it to stop after the current step and take everything back."""

    def retry(self, operation_id: str) -> Operation:
        """A stuck operation: try to take the rest back again."""

    def abandon(self, operation_id: str) -> Operation:
        """A stuck operation: the operator has cleaned up by hand; release what it holds."""
