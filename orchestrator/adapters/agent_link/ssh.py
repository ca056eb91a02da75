# SPDX-License-Identifier: Apache-2.0
"""SSH transports: connect, check the pinned host key, log in. And read a host's key for enrolment.

A transport may stand for days. The kernel asks the other side whether it is there (TCP keepalive), so that no thread
has to: the heartbeat of a host.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import paramiko

from orchestrator.core.contained import Contained
from orchestrator.core.errors import Fatal, Retryable, WorldError
from orchestrator.core.hosts.host import Host

UNREACHABLE = "host.unreachable"

CONNECT_SECONDS = 5.0
HANDSHAKE_SECONDS = 30.0

LOST: Final = (paramiko.SSHException, EOFError, OSError)
"""What a connection raises once its other end is gone. Keys are exchanged again now and then, also below a channel."""
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""Key type of known_hosts → signature algorithms to ask for, where they differ."""


@dataclass(frozen=True)
class HostKeyFound:
    """``type`` and base64 ``key`` as in known_hosts, ``fingerprint`` as ssh prints it (``SHA256:…``)."""

    type: str
    key: str
    fingerprint: str


def unreachable(address: str, error: Exception | str) -> Retryable:
    """Nothing was sent to the agent."""
    return Retryable(
        UNREACHABLE,
        f"{address} cannot be reached{_kind_of(error)}",
        hint="is the host up, and does ssh answer there?",
        details=str(error) or type(error).__name__,
    )


def _kind_of(error: Exception | str) -> str:
    if isinstance(error, str):
        return f": {error}"
    if isinstance(error, socket.gaierror | UnicodeError):
        return ": its name is not known"
    if isinstance(error, ConnectionRefusedError):
        return ": nothing listens there"
    return ": it does not answer" if isinstance(error, TimeoutError) else ""


def scan_host_key(address: str, port: int) -> HostKeyFound:
    """The key that the host proves to have, best type first.

    :raises Retryable: ``host.unreachable``
    """
    transport = _transport(address, port, None)
    try:
        key = transport.get_remote_server_key()
    except LOST as error:
        raise unreachable(f"{address}, port {port},", error) from error
    finally:
        transport.close()
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return HostKeyFound(type=key.get_name(), key=key.get_base64(), fingerprint=f"SHA256:{digest}")


def connect(host: Host, *, user: str, key_file: Path, lost: Callable[[], None]) -> paramiko.Transport:
    """A transport that is logged in. ``lost`` is called when the host goes silent.

    :raises Retryable: ``host.unreachable``
    :raises Fatal: ``host.key_changed``, ``host.auth_failed``, ``host.agent_key_unreadable``
    """
    key = _private_key(key_file)
    pinned_type, _, pinned_key = host.host_key.partition(" ")
    transport = _transport(host.address, host.port, pinned_type)
    broken: list[Exception] = []
    with Contained(broken.append):
        presented = transport.get_remote_server_key()
        if (presented.get_name(), presented.get_base64()) != (pinned_type, pinned_key.strip()):
            raise _key_changed(host, presented.get_name())
        transport.auth_timeout = HANDSHAKE_SECONDS
        transport.auth_publickey(user, key)
    for problem in broken:
        transport.close()
        raise problem if isinstance(problem, WorldError) else _login_error(host, problem) from problem
    transport.stand(lost)
    return transport


def _transport(address: str, port: int, key_type: str | None) -> StandingTransport:
    """Connected, keys exchanged; the server is asked for its key of ``key_type`` only."""
    try:
        connection = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
    except (OSError, UnicodeError) as error:
        raise unreachable(f"{address}, port {port},", error) from error
    transport = StandingTransport(connection)
    transport.banner_timeout = HANDSHAKE_SECONDS
    transport.handshake_timeout = HANDSHAKE_SECONDS
    broken: list[Exception] = []
    with Contained(broken.append):  # whatever the library's thread ended with, by what a stranger sent
        if key_type is not None:
            transport.get_security_options().key_types = _ALGORITHMS.get(key_type, (key_type,))
        transport.start_client(timeout=HANDSHAKE_SECONDS)
    for problem in broken:
        transport.close()
        raise _no_handshake(address, port, problem) from problem
    if not transport.initial_kex_done:  # the library returns at its limit as if all were well
        transport.close()
        raise unreachable(f"{address}, port {port},", f"no SSH server answered within {HANDSHAKE_SECONDS:g} s")
    return transport


def _no_handshake(address: str, port: int, error: Exception) -> WorldError:
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return Fatal(
            "host.key_changed",
            f"{address} no longer has the SSH host key of the pinned type",
            hint="if the host was reinstalled on purpose, enrol it again",
            details=str(error),
        )
    return unreachable(f"{address}, port {port},", error)


def _private_key(key_file: Path) -> paramiko.PKey:
    try:
        return paramiko.PKey.from_path(key_file)
    except (paramiko.SSHException, OSError, ValueError) as error:
        raise Fatal(
            "host.agent_key_unreadable",
            "the controller's own SSH key cannot be read",
            hint="see the state directory's secrets",
            details=str(error),
        ) from error


def _key_changed(host: Host, presented_type: str) -> Fatal:
    return Fatal(
        "host.key_changed",
        f"the SSH host key of {host.name} has changed",
        hint="if the host was reinstalled on purpose, enrol it again; if not, somebody may be in between",
        details=f"it presents another {presented_type} key than the pinned one",
    )


def _login_error(host: Host, error: Exception) -> WorldError:
    if isinstance(error, paramiko.AuthenticationException):
        return Fatal(
            "host.auth_failed",
            f"{host.name} does not accept the controller's key",
            hint=f"'vgpuctl host upgrade-agent {host.name}' installs the agent again",
            details=str(error),
        )
    return unreachable(host.address, error)


SILENT_AFTER_S: Final = 9
"""After so long without an answer of the other side's kernel the connection is lost."""
_POLL_S: Final = 60.0
"""paramiko's own thread reads with a tenth of a second as its limit: 27 % of a core with a thousand connections."""
_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_AFTER_S * 1000),
)


def _nobody() -> None:
    """Nobody wants to know."""


class StandingTransport(paramiko.Transport):
    """``connection``: to the host's SSH port."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._connection = connection
        self._tell_lost: Callable[[], None] = _nobody

    def stand(self, lost: Callable[[], None]) -> None:
        """Logged in; ``lost`` is called when it ends without :meth:`close`, on its own thread."""
        for level, option, value in _OPTIONS:
            self._connection.setsockopt(level, option, value)
        self._connection.settimeout(_POLL_S)
        self._tell_lost = lost

    def run(self) -> None:
        super().run()
        self._tell_lost()

    def close(self) -> None:
        self._tell_lost = _nobody
        with contextlib.suppress(OSError):  # wakes its thread, which waits for bytes
            self._connection.shutdown(socket.SHUT_RDWR)
        super().close()
