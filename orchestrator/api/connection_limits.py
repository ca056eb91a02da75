# SPDX-License-Identifier: Apache-2.0
"""Who may connect, and how often: a stranger must not take the descriptors that everybody else needs.

asyncio accepts in a loop and asks nobody, so the socket that it is given decides: a connection too many is closed as it
is taken. Where the process has no descriptor left, asyncio would log each one that waits and start as many loops.
"""

from __future__ import annotations

import errno
import ipaddress
import itertools
import os
import resource
import socket
import struct
import weakref
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

_UCRED: Final = struct.Struct("3i")
_USED_UP: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_SENT_AWAY_AT_ONCE: Final = 64
"""Then the event loop does something else first."""
DESCRIPTORS: Final = 65536
"""As many as deploy/vgpuctl.service gives; what a process may take by itself is taken."""
KEPT_BACK: Final = 16
"""For connections on the owner's socket, when everything else is taken."""

Peer = str
"""``uid:1000``; an address; of IPv6 the first 64 bits, which are one customer's."""


class ConnectionLimit:
    """Of connections in all and of one peer; None: any number.

    At the limit, the newest connection of the peer with most connections is closed, for a peer that has fewer.
    """

    def __init__(self, total: int | None = None, of_peer: int | None = None) -> None:
        self._total, self._of_peer = total, of_peer
        self._open: dict[Peer, dict[int, weakref.ref[Connection]]] = {}
        self._numbers = itertools.count()

    def admits(self, peer: Peer) -> bool:
        """For one more of this peer, ended ones not counted."""
        own = len(self._open.get(peer, ()))
        if self._of_peer is not None and own >= self._of_peer:
            return False
        if self._total is None or sum(map(len, self._open.values())) < self._total:
            return True
        most = max(self._open.values(), key=len)
        newest = most[max(most)]() if len(most) > own + 1 else None
        return newest is not None and newest.end()

    def admit(self, peer: Peer, taken: socket.socket, freed: Callable[[], object]) -> Connection:
        """It counts until it is closed. ``freed``: told when its descriptor is, before anybody has it."""
        number = next(self._numbers)
        connection = Connection(taken, partial(self._leave, peer, number), freed)
        self._open.setdefault(peer, {})[number] = weakref.ref(connection)
        return connection

    def _leave(self, peer: Peer, number: int) -> None:
        of_peer = self._open.get(peer, {})
        of_peer.pop(number, None)
        if not of_peer:
            self._open.pop(peer, None)


class SpareDescriptors:
    """Descriptors that are held so that they can be given up."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self.fill()

    def fill(self) -> None:
        """As many again, as far as there are any."""
        with suppress(OSError):
            while len(self._held) < self._count:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def give_up(self) -> int:
        """How many there were; then there is one less."""
        count = len(self._held)
        if count:
            os.close(self._held.pop())
        return count


class Connection(socket.socket):
    """Says when it is closed, however it ends."""

    def __init__(self, taken: socket.socket, left: Callable[[], object], freed: Callable[[], object]) -> None:
        super().__init__(taken.family, taken.type, taken.proto, fileno=taken.detach())
        self._left = weakref.finalize(self, left)
        self._left.atexit = False
        self._freed = freed

    def end(self) -> bool:
        """Whoever has it reads its end. Its place is free from now on, its descriptor soon."""
        self._left()
        with suppress(OSError):  # the other end has gone already
            self.shutdown(socket.SHUT_RDWR)
        return True

    def close(self) -> None:
        super().close()
        self._left()
        self._freed()


class Listener(socket.socket):
    """A socket that listens and takes no more connections than ``limit`` admits.

    ``kept_back``: how many it still takes when the process has no descriptor left. Those that come then are closed as
    they are taken: one that waits would be told of again and again.
    """

    def __init__(self, listening: socket.socket, limit: ConnectionLimit, kept_back: int = 0) -> None:
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self._limit = limit
        self._spare = SpareDescriptors(kept_back + 1)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one that the limit admits. :raises BlockingIOError: none is there now"""
        for _ in range(_SENT_AWAY_AT_ONCE):
            taken, address, stays = self._taken()
            peer = _peer(taken, address)
            if stays and self._limit.admits(peer):
                return self._limit.admit(peer, taken, self._spare.fill), address
            taken.close()
            self._spare.fill()
        raise BlockingIOError(errno.EAGAIN, "others first")

    def close(self) -> None:
        while self._spare.give_up():
            pass
        super().close()

    def _taken(self) -> tuple[socket.socket, Any, bool]:
        """And whether there is a descriptor for it to stay: the last one is there to send others away."""
        try:
            return *super().accept(), True
        except OSError as error:
            if error.errno not in _USED_UP:
                raise
        had = self._spare.give_up()
        try:
            return *super().accept(), had > 1
        except OSError as error:  # that none is left is said also where nobody waits
            self._spare.fill()
            raise BlockingIOError(errno.EAGAIN, "none waits, or no descriptor is left") from error


def _peer(taken: socket.socket, address: Any) -> Peer:
    if taken.family == socket.AF_UNIX:
        return f"uid:{peer_credentials(taken)[1]}"
    peer = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(peer, ipaddress.IPv4Address):
        return str(peer)
    return str(peer.ipv4_mapped or ipaddress.IPv6Network((peer, 64), strict=False))


def peer_credentials(connected: socket.socket | TransportSocket) -> tuple[int, int, int]:
    """Of the other end of a unix socket: pid, uid, gid. The kernel says so (SO_PEERCRED, unix(7))."""
    pid, uid, gid = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid


def take_descriptors() -> None:
    """As many as this process may have without asking anybody, up to :data:`DESCRIPTORS`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def network_limit() -> ConnectionLimit:
    """On the network: half of all descriptors, a quarter of that for one address; the rest is for hosts and files."""
    return _share(2, 2048)


def group_limit() -> ConnectionLimit:
    """On the socket of a group of users."""
    return _share(8, 512)


def _share(part: int, at_most: int) -> ConnectionLimit:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    total = at_most if soft == resource.RLIM_INFINITY else max(8, min(at_most, soft // part))
    return ConnectionLimit(total, max(4, total // 4))
