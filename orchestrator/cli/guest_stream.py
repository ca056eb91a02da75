# SPDX-License-Identifier: Apache-2.0
"""Bytes between this process and a VM: its serial console in a raw terminal, a TCP port on stdin and stdout, or its
display at a port of this machine's loopback, for any VNC viewer of the person who opened it."""

from __future__ import annotations

import os
import socket
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect, unix_connect

from orchestrator.cli.output import somebody_types
from orchestrator.cli.session import CliSession
from orchestrator.client.connection import path_of, problem_of
from orchestrator.client.contexts import ClientContext
from orchestrator.client.location import SOCKET_NAME, SocketAddress
from orchestrator.client.tls_http import headers_of, trust_of
from orchestrator.client.token import token_headers
from orchestrator.core.errors import Conflict, Denied, Retryable

LEAVE: Final = b"\x1d"
"""Ctrl-], as telnet and virsh have it."""
CHUNK: Final = 65536
RETRY_S: Final = 0.5
OPEN_LIMIT_S: Final = 60


def _elsewhere(context: ClientContext, target: str) -> ClientConnection:
    host, port = context.address()
    return connect(
        f"wss://{f'[{host}]' if ':' in host else host}:{port}{target}",
        ssl=trust_of(context),
        compression=None,
        max_size=None,
        open_timeout=OPEN_LIMIT_S,
        additional_headers=headers_of(context),
    )


@contextmanager
def open_stream(session: CliSession, *parts: str, tenant: str, timeout_s: float = 0) -> Iterator[ClientConnection]:
    """A websocket to ``/v1/vms/…``; waits up to ``timeout_s`` for a guest that does not listen yet.

    :raises VgpuctlError: the server's own error
    """
    deadline = time.monotonic() + timeout_s
    with ExitStack() as opened:
        while True:
            try:
                stream = _connect(opened, session, f"{path_of('vms', *parts)}?tenant={tenant}")
                break
            except Retryable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_S)
        yield stream


def _connect(opened: ExitStack, session: CliSession, target: str) -> ClientConnection:
    try:
        if session.context is not None and session.context.url is not None:
            return opened.enter_context(_elsewhere(session.context, target))
        with SocketAddress(session.state / SOCKET_NAME) as address:
            return opened.enter_context(
                unix_connect(
                    address,
                    f"ws://localhost{target}",
                    compression=None,
                    max_size=None,
                    open_timeout=OPEN_LIMIT_S,
                    additional_headers=token_headers(),
                )
            )
    except InvalidStatus as refused:
        raise problem_of(refused.response.status_code, bytes(refused.response.body or b"")) from refused
    except (OSError, ValueError, EOFError, WebSocketException) as error:
        raise Retryable("server.unreachable", f"the server does not answer: {error}") from error


def join_standard_streams(stream: ClientConnection, *, leave: bytes | None) -> bool:
    """Carry stdin to the VM and the VM to stdout until one side ends; whether it was the VM's.

    With ``leave`` that byte ends it and the end of the input does not; without it the end of the input does.

    :raises Retryable: ``stream.server_stopped``, ``stream.cut``; :raises Denied: ``stream.no_longer_allowed``
    """
    threading.Thread(target=_send_input, args=(stream, leave), daemon=True).start()
    try:
        while True:
            message = stream.recv()
            _write_all(1, message if isinstance(message, bytes) else message.encode())
    except ConnectionClosed as closed:
        return closed_by_vm(closed)
    finally:
        stream.close()


def closed_by_vm(error: ConnectionClosed) -> bool:
    """False: by who sits here. What a server writes beside its code is a stranger's; the code alone is believed.

    :raises Retryable: ``stream.server_stopped``, ``stream.cut``; :raises Denied: ``stream.no_longer_allowed``
    """
    if error.sent is not None and not error.rcvd_then_sent:
        return False
    code = CloseCode.ABNORMAL_CLOSURE if error.rcvd is None else error.rcvd.code
    if code in {CloseCode.NORMAL_CLOSURE, CloseCode.NO_STATUS_RCVD}:
        return True
    if code in {CloseCode.SERVICE_RESTART, CloseCode.GOING_AWAY}:
        raise Retryable(
            "stream.server_stopped",
            "the server is being stopped or replaced",
            hint="the VM runs on; open it again when the server answers",
        )
    if code == CloseCode.POLICY_VIOLATION:
        raise Denied(
            "stream.no_longer_allowed",
            "who opened it may no longer: a token or login has ended, or a member is one no more",
            hint="'vgpuctl whoami' tells who you are to the server now",
        )
    raise Retryable(
        "stream.cut",
        "the connection was cut",
        details=f"code {code}",
        hint="open it again; the VM is not changed by it",
    )


def _send_input(stream: ClientConnection, leave: bytes | None) -> None:
    try:
        while data := os.read(0, CHUNK):
            if leave is not None and leave in data:
                stream.close()
                return
            stream.send(data)
    except (WebSocketException, OSError):
        pass  # closed, or standard input is not there: then it has ended
    if leave is None:
        stream.close()


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Every key goes to the guest; the terminal is put back whatever happens."""
    if not somebody_types():
        yield
        return
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


LOOPBACK: Final = "127.0.0.1"
_CONNECTIONS: Final = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID = 1, 2, 7
"""Columns there."""


def listen(port: int) -> socket.socket:
    """One viewer at a time. ``port``: 0 takes a free one. :raises Conflict: ``port.in_use``"""
    try:
        return socket.create_server((LOOPBACK, port), backlog=1)
    except OSError as error:
        hint = "leave --port out, and a free one is taken"
        raise Conflict("port.in_use", f"port {port} cannot be taken: {error.strerror}", hint=hint) from error


def accept_own(listener: socket.socket) -> socket.socket:
    """The next viewer that this person runs; others on this machine are hung up on."""
    while True:
        viewer, _ = listener.accept()
        if _uid_behind(viewer) == os.getuid():
            return viewer
        viewer.close()


def _uid_behind(viewer: socket.socket) -> int | None:
    """Whose process is at the other end, as the kernel lists it; None: it has left again."""
    try:
        ends = _as_listed(viewer.getpeername()), _as_listed(viewer.getsockname())
    except OSError:
        return None
    rows = (line.split() for line in _CONNECTIONS.read_text().splitlines()[1:])
    return next((int(row[_UID]) for row in rows if (row[_LOCAL], row[_REMOTE]) == ends), None)


def _as_listed(address: tuple[str, int]) -> str:
    return f"{socket.inet_aton(address[0])[::-1].hex().upper()}:{address[1]:04X}"


def join_viewer(viewer: socket.socket, stream: ClientConnection) -> bool:
    """Carry bytes both ways until one side ends; whether it was the VM's.

    :raises Retryable: ``stream.server_stopped``, ``stream.cut``; :raises Denied: ``stream.no_longer_allowed``
    """
    threading.Thread(target=_send, args=(viewer, stream), daemon=True).start()
    try:
        while True:
            message = stream.recv()
            viewer.sendall(message if isinstance(message, bytes) else message.encode())
    except ConnectionClosed as closed:
        return closed_by_vm(closed)
    except OSError:
        return False  # the viewer was closed
    finally:
        stream.close()
        with suppress(OSError):  # it has left
            viewer.shutdown(socket.SHUT_RDWR)
        viewer.close()


def _send(viewer: socket.socket, stream: ClientConnection) -> None:
    try:
        while data := viewer.recv(CHUNK):
            stream.send(data)
    except (WebSocketException, OSError):
        pass  # one side has closed
    stream.close()
