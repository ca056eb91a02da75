# SPDX-License-Identifier: Apache-2.0
"""An SSH transport to a host and a few idle conversations on it. Hosts never wait for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import paramiko

from orchestrator.adapters.agent_link.conversation import Conversation
from orchestrator.adapters.agent_link.ssh import UNREACHABLE
from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.host import Host

T = TypeVar("T")

MAX_CONVERSATIONS = 5
"""At once on one transport: sshd's MaxSessions is 10 by default, and watching needs one."""

Connect = Callable[[Host], paramiko.Transport]
Open = Callable[[Host, paramiko.Transport], Conversation]


class HostLine:
    """Everything that is open to one host."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_CONVERSATIONS)
        self._transport: paramiko.Transport | None = None
        self._idle: list[Conversation] = []
        self._users = 0
        self.last_used = 0.0
        """On the monotonic clock."""

    @property
    def connected(self) -> bool:
        transport = self._transport
        return transport is not None and transport.is_active()

    def close_unused(self) -> bool:
        """Unless somebody uses it; whether it is closed."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._users:
                return False
            transport, self._transport = self._transport, None
            self._idle.clear()
        finally:
            self._lock.release()
        if transport is not None:
            transport.close()
        return True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """It is not :meth:`close_unused` meanwhile."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self.last_used = time.monotonic()

    @contextmanager
    def conversation(self, host: Host, open_new: Open, *, fresh: bool) -> Iterator[Conversation]:
        """An idle conversation or a new one (``fresh``: certainly a new one), kept for the next caller when both ends
        agree on where they are.

        :raises Retryable: ``host.unreachable``, ``agent.not_running``
        """
        with self._places, self.in_use():
            idle = None if fresh else self._take_idle()
            conversation = idle or self._open(host, open_new)
            try:
                yield conversation
            finally:
                self._keep(conversation)

    def _open(self, host: Host, open_new: Open) -> Conversation:
        return self.use(host, lambda transport: open_new(host, transport))

    def use(self, host: Host, opening: Callable[[paramiko.Transport], T]) -> T:
        """What ``opening`` makes of the live transport. One that turns out dead is dropped: the next caller connects
        anew. One that is only busy is not: others' conversations are on it."""
        transport = self._live(host)
        try:
            return opening(transport)
        except Retryable as error:
            if error.code == UNREACHABLE:
                self._drop(transport)
            raise

    def _live(self, host: Host) -> paramiko.Transport:
        """The live transport; connects when there is none."""
        with self._lock:
            if self._transport is None or not self._transport.is_active():
                self._transport = self._connect(host)
                self._idle.clear()
            return self._transport

    def close(self) -> None:
        with self._lock:
            transport = self._transport
        if transport is not None:
            self._drop(transport)

    def _drop(self, transport: paramiko.Transport) -> None:
        """A transport that is of no use: the next caller connects anew."""
        with self._lock:
            if self._transport is transport:
                self._transport = None
                self._idle.clear()
        transport.close()

    def _take_idle(self) -> Conversation | None:
        with self._lock:
            while self._idle:
                conversation = self._idle.pop()
                if conversation.usable():
                    return conversation
                conversation.close()
        return None

    def _keep(self, conversation: Conversation) -> None:
        if not (conversation.settled and conversation.usable()):
            conversation.close()
            return
        with self._lock:
            self._idle.append(conversation)
