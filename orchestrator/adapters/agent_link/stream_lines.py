# SPDX-License-Identifier: Apache-2.0
"""Consoles, connections to guests and images to one host: on transports of their own, so that however many there are,
and whatever happens to them, observing and acting go on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import paramiko

from orchestrator.adapters.agent_link.conversation import Conversation, Message
from orchestrator.adapters.agent_link.pool import Connect, HostLine
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.host import Host

STREAMS_PER_TRANSPORT = 8
"""sshd's MaxSessions is 10 by default."""
TRANSPORTS = 4
STREAMS_PER_VM = 8

Opened = tuple[Conversation, Message]


class StreamLines:
    """Places are taken before anything is opened and given back by :meth:`Place.leave`."""

    def __init__(self, connect: Connect) -> None:
        self._lock = threading.Lock()
        self._lines = [HostLine(connect) for _ in range(TRANSPORTS)]
        self._used = [0] * TRANSPORTS
        self._of_vm: Counter[str] = Counter()

    def open(
        self, host: Host, vm: str | None, open_new: Callable[[paramiko.Transport], Opened]
    ) -> tuple[Opened, Callable[[], None]]:
        """A stream and what gives its place back. ``vm``: whose it is; None: an image's.

        :raises Conflict: ``stream.too_many``
        :raises VgpuctlError: what ``open_new`` raises
        """
        number = self._take(host, vm)
        leave = _Once(lambda: self._leave(number, vm))
        try:
            return self._lines[number].use(host, open_new), leave
        except BaseException:
            leave()
            raise

    def close(self) -> None:
        for line in self._lines:
            line.close()

    def _take(self, host: Host, vm: str | None) -> int:
        with self._lock:
            if vm is not None and self._of_vm[vm] >= STREAMS_PER_VM:
                raise _too_many(f"the VM has {STREAMS_PER_VM} streams open already")
            for number, used in enumerate(self._used):
                if used < STREAMS_PER_TRANSPORT:
                    self._used[number] += 1
                    if vm is not None:
                        self._of_vm[vm] += 1
                    return number
        raise _too_many(f"{host.name} has {TRANSPORTS * STREAMS_PER_TRANSPORT} streams open already")

    def _leave(self, number: int, vm: str | None) -> None:
        with self._lock:
            self._used[number] -= 1
            if vm is not None:
                self._of_vm[vm] -= 1
                self._of_vm += Counter()  # drops what is at nought


class _Once:
    """A stream may be closed by both of its ends."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        with self._lock:
            function, self._function = self._function, None
        if function is not None:
            function()


def _too_many(message: str) -> Conflict:
    return Conflict("stream.too_many", message, hint="close a console or a connection that is no longer needed")
