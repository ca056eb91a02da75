# SPDX-License-Identifier: Apache-2.0
"""The connections of one move between two hosts: TLS 1.3 with keys of that move alone, each end knowing the other's
certificate. The host that a VM comes to listens as long as the move takes, on one of the ports that libvirt uses for
migrations; each connection says first which socket of that host it is for.

On the host that it leaves each of these sockets has a twin, which libvirt and QEMU connect to.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import ssl
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from orchestrator.core.actions.live_move import MoveKey
from orchestrator.core.errors import Retryable, VgpuctlError

log = logging.getLogger(__name__)

PORTS: Final = range(49152, 49216)
"""libvirt's own for migrations (qemu.conf, migration_port_min), which firewalls of hosts let through."""
_CHUNK: Final = 256 * 1024
_MAX_WAITING: Final = 4 * 1024 * 1024
_CONNECT_S: Final = 5.0
_GREET_S: Final = 15.0
_NAME_BYTES: Final = 8
_WAIT_MS: Final = 1000
_MOST: Final = 16
"""Connections of a move (libvirt and QEMU make three), and as many that have not shown who they are yet."""
_PAUSE_S: Final = 0.2

_AGAIN: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Passed = Callable[[bytes], bytes]
"""What of the bytes goes on; raises what ends the connection."""


class _Sock(Protocol):
    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytearray, /) -> int: ...
    def fileno(self) -> int: ...


def everything(data: bytes) -> bytes:
    """Nothing is held back."""
    return data


def context_of(own: MoveKey, other: str, *, server: bool) -> ssl.SSLContext:
    """``other``: the certificate (PEM) that the other end has to show. :raises ValueError, OSError: they are none"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=other)
    # in memory, and none but root reads it
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm") as file:
        file.write(own.certificate + own.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context


class _Flow:
    """One direction of a connection."""

    def __init__(self, source: _Sock, sink: _Sock, passed: Passed) -> None:
        self.source, self.sink = source, sink
        self.waiting = bytearray()
        self.ended = False
        self._passed = passed

    @property
    def takes(self) -> bool:
        return not self.ended and len(self.waiting) < _MAX_WAITING

    def step(self) -> bool:
        """Whether anything went on."""
        moved = False
        if self.takes:
            with suppress(*_AGAIN):
                data = self.source.recv(_CHUNK)
                self.waiting += self._passed(data)
                self.ended, moved = not data, True
        if self.waiting:
            with suppress(*_AGAIN):
                sent = self.sink.send(self.waiting)
                del self.waiting[:sent]
                moved = True
        return moved


def join(near: socket.socket, far: ssl.SSLSocket, passed: Passed = everything) -> None:
    """Until one end closes, and all that it sent before is delivered. ``passed``: of what comes from afar."""
    near.setblocking(False)
    far.setblocking(False)
    flows = (_Flow(near, far, everything), _Flow(far, near, passed))
    while not any(flow.ended and not flow.waiting for flow in flows):
        moved = [flow.step() for flow in flows]
        if not any(moved):
            _wait(flows)


def _wait(flows: Sequence[_Flow]) -> None:
    poll, events = select.poll(), dict[int, int]()
    for flow in flows:
        for end, wanted in (
            (flow.source, select.POLLIN if flow.takes else 0),
            (flow.sink, select.POLLOUT if flow.waiting else 0),
        ):
            if wanted:
                events[end.fileno()] = events.get(end.fileno(), 0) | wanted
    for descriptor, wanted in events.items():
        poll.register(descriptor, wanted)
    poll.poll(_WAIT_MS)


class _Open:
    """Sockets that are closed when the move is over, whoever waits at them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._strangers: list[socket.socket] = []
        self._places = threading.BoundedSemaphore(_MOST)
        self.over = False

    @contextmanager
    def of(self, opened: socket.socket) -> Iterator[None]:
        with self._lock:
            self._sockets.add(opened)
            if self.over:
                _shut(opened)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(opened)
            opened.close()

    @contextmanager
    def stranger(self, opened: socket.socket) -> Iterator[None]:
        """Until it has shown who it is: of too many the oldest ends, so that none keeps the others out."""
        with self._lock:
            self._strangers.append(opened)
            if len(self._strangers) > _MOST:
                _shut(self._strangers.pop(0))
        try:
            yield
        finally:
            with self._lock, suppress(ValueError):
                self._strangers.remove(opened)

    @contextmanager
    def place(self) -> Iterator[None]:
        """:raises OSError: all are taken"""
        if not self._places.acquire(blocking=False):
            raise OSError(f"there are {_MOST} already")
        try:
            yield
        finally:
            self._places.release()

    def end(self) -> None:
        with self._lock:
            self.over = True
            for opened in self._sockets:
                _shut(opened)


def _shut(opened: socket.socket) -> None:
    """Beneath TLS, whose own would have what is left be read as it came, encrypted."""
    with suppress(OSError):
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _accepting(listener: socket.socket, opened: _Open, serve: Callable[[socket.socket], None]) -> None:
    """A thread for each that comes, until the move is over."""

    def one(connection: socket.socket) -> None:
        with opened.of(connection):
            try:
                serve(connection)
            except (OSError, VgpuctlError) as error:
                log.info("a connection of a move ended: %s", error)

    with opened.of(listener):
        while not opened.over:
            with ExitStack() as stack:
                try:
                    connection = stack.enter_context(listener.accept()[0])
                    threading.Thread(target=one, args=(connection,), name="move", daemon=True).start()
                except (OSError, RuntimeError) as error:  # no descriptor or thread is left: it is tried again
                    if not opened.over:
                        log.warning("a connection of a move was not taken: %s", error)
                        time.sleep(_PAUSE_S)
                else:
                    stack.pop_all()


@dataclass(frozen=True)
class Coming:
    """Where a VM may come now."""

    port: int
    refusals: list[VgpuctlError] = field(default_factory=list)
    """What the other end, which is who it should be, was refused: its libvirt only sees that the connection ends."""


@contextmanager
def coming(
    own: MoveKey, other: str, sockets: Mapping[str, Path], inspected: Mapping[str, Callable[[], Passed]]
) -> Iterator[Coming]:
    """Take connections for these sockets of this host. ``inspected``: what passes, for some of them."""
    context, opened = context_of(own, other, server=True), _Open()

    def serve(connection: socket.socket) -> None:
        connection.settimeout(_GREET_S)
        with (
            context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as far,
            opened.of(far),
        ):
            with opened.stranger(far):
                far.do_handshake()
            with opened.place():
                name = _name(far)
                if name in sockets:
                    with _noted(here.refusals), _connected(sockets[name]) as near:
                        join(near, far, inspected.get(name, lambda: everything)())

    listener = _listen()
    here = Coming(listener.getsockname()[1])
    thread = threading.Thread(target=_accepting, args=(listener, opened, serve), name="moves", daemon=True)
    thread.start()
    try:
        yield here
    finally:
        opened.end()


@contextmanager
def _noted(refusals: list[VgpuctlError]) -> Iterator[None]:
    try:
        yield
    except VgpuctlError as error:
        refusals.append(error)
        raise


def _connected(path: Path) -> socket.socket:
    """Follows no link that QEMU's account put into its directory, and takes no socket there of somebody else.

    :raises OSError: there is none"""
    with _held_socket(path) as (held, about):
        if about.st_uid not in {0, path.parent.stat().st_uid}:
            raise PermissionError(f"{path} is of uid {about.st_uid}")
        near = socket.socket(socket.AF_UNIX)
        try:
            near.connect(held)
        except OSError:
            near.close()
            raise
        return near


@contextmanager
def _held_socket(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """A path to the very socket, whatever is put in its place. :raises OSError: it is none"""
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISSOCK(about.st_mode):
            raise FileNotFoundError(f"{path} is no socket")
        yield f"/proc/self/fd/{descriptor}", about
    finally:
        os.close(descriptor)


def _name(far: ssl.SSLSocket) -> str:
    name = b""
    while len(name) < _NAME_BYTES and (more := far.recv(_NAME_BYTES - len(name))):
        name += more
    return name.decode(errors="replace").rstrip()


def _listen() -> socket.socket:
    for port in PORTS:
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
        with suppress(OSError):  # a host without IPv6
            return socket.create_server(("", port), backlog=64)
    raise Retryable("move.no_port", f"the ports {PORTS[0]} to {PORTS[-1]} are all in use", hint="try again")


@contextmanager
def leaving(
    own: MoveKey, other: str, ends: Sequence[tuple[str, int]], sockets: Mapping[str, Path], owner: int
) -> Iterator[None]:
    """Have each of these sockets here, for ``owner`` (a uid) alone, and its connections go to one of the ``ends``.

    :raises Retryable: ``move.unreachable``"""
    context, opened = context_of(own, other, server=False), _Open()
    end = _reached(ends, context)

    def serve_as(name: str) -> Callable[[socket.socket], None]:
        def serve(near: socket.socket) -> None:
            with opened.place(), _greeted(end, context) as far, opened.of(far):
                far.sendall(name.encode().ljust(_NAME_BYTES))
                join(near, far)

        return serve

    with ExitStack() as stack:
        stack.callback(opened.end)
        for name, path in sockets.items():
            listener = _twin(path, owner)
            stack.callback(path.unlink, missing_ok=True)
            arguments = (listener, opened, serve_as(name))
            threading.Thread(target=_accepting, args=arguments, name="moves", daemon=True).start()
        yield


def _twin(path: Path, owner: int) -> socket.socket:
    """Nobody connects before it listens; then ``owner`` alone may. The agent has many threads, and one umask."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        with _held_socket(path) as (held, about):
            if (about.st_uid, about.st_nlink) != (os.geteuid(), 1):
                raise PermissionError(f"{path} was replaced")
            Path(held).chmod(0o600)
            os.chown(held, owner, -1)
        listener.listen(64)
    except OSError:
        listener.close()
        raise
    return listener


def _greeted(end: tuple[str, int], context: ssl.SSLContext) -> ssl.SSLSocket:
    """It is the other host. :raises OSError: it is not, or is not reached"""
    plain = socket.create_connection(end, timeout=_CONNECT_S)
    try:
        plain.settimeout(_GREET_S)
        return context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise


def _reached(ends: Sequence[tuple[str, int]], context: ssl.SSLContext) -> tuple[str, int]:
    """The first at which the other host is: an address of its own may be another's here."""
    refused = []
    for end in ends:
        try:
            _greeted(end, context).close()
        except OSError as error:
            refused.append(f"{end[0]}: {error}")
        else:
            return end
    raise Retryable(
        "move.unreachable", "the other host cannot be reached from this one",
        hint=f"let hosts reach each other at ports {PORTS[0]} to {PORTS[-1]}", details="; ".join(refused),
    )  # fmt: skip
