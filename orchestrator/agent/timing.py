# SPDX-License-Identifier: Apache-2.0
"""Waiting, jitter and deadlines of the agent, in one place so that tests need not wait."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Timing(Protocol):
    def monotonic(self) -> float:
        """Seconds that only grow."""

    def sleep(self, seconds: float) -> None: ...

    def jitter(self, seconds: float) -> float:
        """Between half of ``seconds`` and one and a half times as much."""


@dataclass(frozen=True)
class RealTiming:
    """The host's own clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self, seconds: float) -> float:
        return seconds * random.uniform(0.5, 1.5)  # noqa: S311 - spreads retries, guards nothing


T = TypeVar("T")


class CallHangs(Exception):
    """The call did not come back in time; whether it had an effect is not known."""


class TooManyHungCalls(Exception):
    """The call was not made: too many earlier ones still hang."""


class _Call(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.result: list[T] = []
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self.result.append(self._function())
        except BaseException as error:  # noqa: BLE001 - handed to the waiting caller, which raises it
            self.error = error
        finally:
            self.done.set()


class Gate:
    """Deadlines for calls into C libraries that may never come back (libvirt, NVML): lets calls through until
    ``most_hanging`` of them hang, so that threads cannot pile up behind a dead daemon."""

    def __init__(self, name: str, *, limit_s: float, most_hanging: int = 8) -> None:
        self._name = name
        self._limit_s = limit_s
        self._most_hanging = most_hanging
        self._lock = threading.Lock()
        self._hanging: list[threading.Event] = []

    def call(self, function: Callable[[], T], *, limit_s: float | None = None) -> T:
        """The function's own result or exception.

        :raises CallHangs: no answer within ``limit_s`` (default: the gate's own limit)
        :raises TooManyHungCalls: nothing was done
        """
        with self._lock:
            self._hanging = [done for done in self._hanging if not done.is_set()]
            if len(self._hanging) >= self._most_hanging:
                raise TooManyHungCalls(f"{len(self._hanging)} earlier calls to {self._name} still hang")
        call = _Call(function)
        threading.Thread(target=call.run, name=f"{self._name}-call", daemon=True).start()
        if not call.done.wait(self._limit_s if limit_s is None else limit_s):
            with self._lock:
                self._hanging.append(call.done)
            raise CallHangs(f"{self._name} did not answer in time")
        if call.error is not None:
            raise call.error
        return call.result[0]
