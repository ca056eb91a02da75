# SPDX-License-Identifier: Apache-2.0
"""Virtual time, and who runs when. One thing runs at a time, and the seed alone decides which is next.

Code under test is ordinary blocking code. Each of its threads (a fiber) holds the baton from one port call to the
next; there it hands the baton back and waits until its event comes up. So a run is a function of its seed.
"""

from __future__ import annotations

import heapq
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count


class Killed(BaseException):
    """The process this fiber belongs to was killed: nobody catches it."""


class Deadlock(Exception):
    """A fiber did not come back from a port call in real time: it waits for something outside the schedule."""


_REAL_PATIENCE_S = 120.0


@dataclass(eq=False)
class Process:
    """A controller's process: its fibers die with it and stand still with it."""

    name: str
    alive: bool = True
    paused: bool = False
    held: list[Fiber] = field(default_factory=list)
    """Those whose turn came while it was paused."""
    fibers: dict[Fiber, None] = field(default_factory=dict)


@dataclass(eq=False)
class Fiber:
    """A thread that only runs while it has the baton."""

    name: str
    process: Process
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waiting_for: int = 0
    """Number of the suspension it is in; an older wake-up is ignored."""
    answer: object = None
    thread: threading.Thread | None = None
    begun: bool = False
    ended: bool = False


class Schedule:
    """``log`` is everything that happened, with its time; two runs of one seed have equal logs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.log: list[str] = []
        self.failure: BaseException | None = None
        self.current: Fiber | None = None
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._back = threading.Semaphore(0)

    def note(self, text: str) -> None:
        self.log.append(f"{self.time:.6f} {text}")

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Call ``action`` outside of any fiber ``delay`` seconds from now."""
        heapq.heappush(self._events, (self.time + delay, next(self._numbers), action))

    def spawn(self, process: Process, name: str, function: Callable[[], None]) -> None:
        """Run ``function`` in a fiber of the process, soon."""
        fiber = Fiber(name, process)
        process.fibers[fiber] = None
        fiber.thread = threading.Thread(target=self._body, args=(fiber, function), name=name, daemon=True)
        self.at(self.random.uniform(0, 0.001), partial(self._resume, fiber))

    def run(self, *, until: float | None = None, quiet: Callable[[], bool] = lambda: False) -> None:
        """Let things happen until that time, until nothing is left to happen or until it is ``quiet``.

        :raises BaseException: what the code under test did not handle
        """
        while self._events and (until is None or self._events[0][0] <= until) and not quiet():
            self.time, _, action = heapq.heappop(self._events)
            action()
            if self.failure is not None:
                raise self.failure
        if until is not None and not quiet():
            self.time = max(self.time, until)

    def sleep(self, seconds: float) -> None:
        """In a fiber: let others run for that long."""
        fiber = self._running()
        ticket = self.ticket()
        self.at(seconds, lambda: self.wake(fiber, ticket, None))
        self.suspend()

    def ticket(self) -> int:
        """Names the suspension that the running fiber is about to begin."""
        fiber = self._running()
        fiber.waiting_for += 1
        return fiber.waiting_for

    def suspend(self) -> object:
        """In a fiber: wait for :meth:`wake` with the ticket drawn before; what it was woken with."""
        fiber = self._running()
        self._back.release()
        fiber.go.acquire()
        if not fiber.process.alive:
            raise Killed
        self.current = fiber
        answer, fiber.answer = fiber.answer, None
        return answer

    def wake(self, fiber: Fiber, ticket: int, answer: object) -> None:
        """Outside of fibers: go on with that fiber, unless it does not wait for this any more."""
        if fiber.ended or fiber.waiting_for != ticket or not fiber.process.alive:
            return
        fiber.waiting_for += 1
        fiber.answer = answer
        self._resume(fiber)

    def kill(self, process: Process) -> None:
        """kill -9: everything in memory is gone; what was sent stays sent."""
        process.alive = False
        for fiber in list(process.fibers):
            if fiber.begun and not fiber.ended:
                self._hand_over(fiber)
        process.fibers.clear()
        process.held.clear()

    def pause(self, process: Process) -> None:
        """SIGSTOP."""
        process.paused = True

    def go_on(self, process: Process) -> None:
        """SIGCONT: what came meanwhile is taken up."""
        process.paused = False
        held, process.held = process.held, []
        for fiber in held:
            self.at(self.random.uniform(0, 0.001), partial(self._resume, fiber))

    def _resume(self, fiber: Fiber) -> None:
        if fiber.process.paused:
            fiber.process.held.append(fiber)
        elif fiber.process.alive:
            self._hand_over(fiber)

    def _running(self) -> Fiber:
        if self.current is None:
            raise RuntimeError("only a fiber can wait")
        return self.current

    def _hand_over(self, fiber: Fiber) -> None:
        if fiber.thread is not None and not fiber.begun:
            fiber.begun = True
            fiber.thread.start()
        fiber.go.release()
        if not self._back.acquire(timeout=_REAL_PATIENCE_S):
            raise Deadlock(fiber.name)
        self.current = None

    def _body(self, fiber: Fiber, function: Callable[[], None]) -> None:
        fiber.go.acquire()
        try:
            if fiber.process.alive:
                self.current = fiber
                function()
        except Killed:
            pass
        finally:
            self.failure = sys.exception()
            fiber.ended = True
            fiber.process.fibers.pop(fiber, None)
            self._back.release()
