# SPDX-License-Identifier: Apache-2.0
"""Runs of this process, on threads of its own: each begins as soon as its host has a place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from orchestrator.adapters.engine.places import Bounds, RunPlaces
from orchestrator.core.contained import Contained
from orchestrator.store.records import DueOperation

_AGAIN_S = 0.2
log = logging.getLogger(__name__)


class OwnRuns:
    """Safe to call from many threads. Nothing of it is stored: what is due is read, and offered again."""

    def __init__(self, bounds: Bounds, run: Callable[[str], None]) -> None:
        """``run`` is given an operation's id."""
        self._places = RunPlaces(bounds)
        self._run = run
        self._waiting: set[str] = set()
        """Taken off the queue, and without a worker yet."""
        self._threads = ThreadPoolExecutor(bounds.most, thread_name_prefix="run")

    def offer(self, due: Iterable[DueOperation]) -> None:
        """Have every one run that neither runs nor waits for a place.

        :raises RuntimeError: no thread can be had; those without one are to be offered again"""
        self._places.stand_in_line(due)
        self._begin_those_with_a_place()

    def give_up_waiting(self) -> None:
        """Nobody waits for a place any more: what did is due."""
        self._places.give_up_waiting()

    def known(self) -> frozenset[str]:
        """Operations that run here or wait for a place."""
        return self._places.known()

    def running(self) -> frozenset[str]:
        """Operations that run here, or will as soon as there is a worker."""
        return self._places.running() | frozenset(self._waiting.copy())

    def run_queued(self, one: DueOperation) -> None:
        """On this thread, as soon as there is a worker: its place in its line was found by all controllers together."""
        self._waiting.add(one.operation)
        try:
            while not self._places.take_now(one):
                if self._places.closed:
                    return  # it is due still
                time.sleep(_AGAIN_S)
            self.run_once(one)
        finally:
            self._waiting.discard(one.operation)

    def run_once(self, one: DueOperation) -> None:
        """On this thread, whether a place was kept for it or not; not beside another run of it in this process."""
        if not self._places.begin(one):
            return
        try:
            self._run(one.operation)
        finally:
            self._places.leave(one.operation)
            with Contained(lambda error: log.warning("no run is begun until the next poll: %s", error)):
                self._begin_those_with_a_place()

    def begin_no_more(self) -> None:
        """What waits for a place stays due."""
        self._places.close()

    def close(self) -> None:
        """Runs that go on end by themselves."""
        self.begin_no_more()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin_those_with_a_place(self) -> None:
        while (one := self._places.take()) is not None:
            try:
                self._threads.submit(self._on_a_thread, one)
            except BaseException:
                self._places.leave(one.operation)  # it is due still: the next thorough look finds it
                raise

    def _on_a_thread(self, one: DueOperation) -> None:
        waits = "operation %s waits for the next poll"
        with Contained(lambda error: log.warning(waits, one.operation, exc_info=error)):
            self.run_once(one)
