# SPDX-License-Identifier: Apache-2.0
"""Serial consoles of domains, each opened once and shown to all streams that want it: libvirt gives it to one alone."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

_CHUNK: Final = 64 * 1024
SLOW_S: Final = 5.0
"""Whoever takes nothing for so long loses its stream, where others wait for the next byte. One who is alone does not:
then the guest waits."""


class OpenedConsole(Protocol):
    def send(self, data: bytes) -> None: ...
    def receive(self, size: int) -> bytes: ...
    def close(self) -> None: ...


class SharedConsoles:
    """By VM. Safe for threads. ``open_console``: raises as consoles.Console does."""

    def __init__(self, open_console: Callable[[str], OpenedConsole], slow_s: float = SLOW_S) -> None:
        self._open_console = open_console
        self._slow_s = slow_s
        self._lock = threading.Lock()
        self._consoles: dict[str, _Shared] = {}

    def join(self, vm: str) -> ConsoleStream:
        """What is printed from now on. :raises Fatal: ``console.refused``"""
        while True:
            with self._lock:
                self._consoles = {name: known for name, known in self._consoles.items() if not known.over}
                shared = self._consoles.setdefault(vm, _Shared(self._slow_s))
            with shared.lock:
                if not shared.over:
                    return self._joined(vm, shared)

    def _joined(self, vm: str, shared: _Shared) -> ConsoleStream:
        """The lock is the console's own: a domain whose libvirt hangs keeps no other waiting."""
        if shared.console is None:
            try:
                shared.console = self._open_console(vm)
            except BaseException:
                shared.over = True
                raise
            threading.Thread(target=shared.show, name="console", daemon=True).start()
        return ConsoleStream(shared)


class _Shared:
    def __init__(self, slow_s: float) -> None:
        self.lock = threading.Lock()
        self.console: OpenedConsole | None = None
        self.over = False
        self.ends: set[socket.socket] = set()
        self._slow_s = slow_s
        self._sending = threading.Lock()

    def send(self, data: bytes) -> None:
        with self._sending:
            if self.console is not None and not self.over:
                self.console.send(data)

    def leave(self, end: socket.socket) -> None:
        """The last one closes the console."""
        with self.lock:
            self._drop(end)
            last = not self.ends and not self.over
            self.over = self.over or last
        if last and self.console is not None:
            self.console.close()

    def show(self) -> None:
        """What the guest prints, to all, until it has ended or nobody is at it."""
        if self.console is None:
            return
        while data := self.console.receive(_CHUNK):
            for end in tuple(self.ends):
                if not self._give(end, data):
                    with self.lock:
                        self._drop(end)
        with self.lock:
            ended, self.over = not self.over, True
            for end in tuple(self.ends):
                self._drop(end)
        if ended:
            self.console.close()

    def _give(self, end: socket.socket, data: bytes) -> bool:
        try:
            while data:
                if _takes_more(end, self._slow_s):
                    data = data[end.send(data) :]
                elif len(self.ends) > 1:
                    return False
        except (OSError, ValueError):  # it has just left
            return False
        return True

    def _drop(self, end: socket.socket) -> None:
        """Whoever reads at the other end still gets what is under way."""
        self.ends.discard(end)
        end.close()


def _takes_more(end: socket.socket, seconds: float) -> bool:
    """By ``poll``: an agent with many consoles has descriptors that ``select`` refuses."""
    ready = select.poll()
    ready.register(end, select.POLLOUT)
    return bool(ready.poll(seconds * 1000))


class ConsoleStream:
    """One of those at a console; as streams.StreamPeer."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._far, self._near = socket.socketpair()
        self._far.setblocking(False)
        shared.ends.add(self._far)

    def send(self, data: bytes) -> None:
        self._shared.send(data)

    def receive(self, size: int) -> bytes:
        try:
            return self._near.recv(size)
        except OSError:
            return b""

    def close(self) -> None:
        self._shared.leave(self._far)
        with suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)
        self._near.close()
