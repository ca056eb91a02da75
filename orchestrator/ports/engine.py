# SPDX-License-Identifier: Apache-2.0
"""Who executes operations: keeps them going across crashes of this process and bounds how many run per host."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """Executes stored operations through operations/runner.py. The operation row is committed before ``submit``."""

    def submit(self, operation_id: str) -> None:
        """Run it soon. Submitting an operation twice runs it once."""

    def recover(self) -> int:
        """Take up every stored operation that is not finished; returns how many. Called once at start."""

    def stop(self) -> object:
        """Let running steps finish, start no further step, return in a bounded time. Unfinished operations stay
        stored."""
