# SPDX-License-Identifier: Apache-2.0
"""A journal whose writes fail where a test says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orchestrator.core.operation import Operation
from orchestrator.operations.journal import Journal, Move, Write, Written
from orchestrator.ports.clock import Clock
from orchestrator.store.database import Store
from orchestrator.store.records import Job
from tests.fakes.fake_host import Strike, no_fault


class StrikingJournal(Journal):
    """Faults at numbered writes, before or after the commit."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self.strike: Strike = no_fault
        self.writes = 0

    def take_up(self, operation_id: str) -> Job | None:
        with self._struck("take_up"):
            return super().take_up(operation_id)

    def _write(self, operation: Operation, moves: Sequence[Move], writes: Sequence[Write], *, whole: bool) -> Written:
        with self._struck(operation.state):
            return super()._write(operation, moves, writes, whole=whole)

    @contextmanager
    def _struck(self, name: str) -> Iterator[None]:
        number, self.writes = self.writes, self.writes + 1
        self._raise(number, "before", name)
        yield
        self._raise(number, "after", name)

    def _raise(self, number: int, moment: str, name: str) -> None:
        fault = self.strike(number, moment, name)
        if fault is not None:
            raise fault
