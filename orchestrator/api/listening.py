# SPDX-License-Identifier: Apache-2.0
"""Where the server can be reached: always a unix socket of its owner's, and when they are set a second one for a group
of users and an address of the network, over TLS."""

from __future__ import annotations

import grp
import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.api.connection_limits import KEPT_BACK, ConnectionLimit, Listener, group_limit, network_limit
from orchestrator.client.location import SOCKET_NAME, bind_for_owner
from orchestrator.core.errors import Fatal, InvalidInput, why_unreadable
from orchestrator.regular_file import open_regular

BACKLOG: Final = 256
_GID: Final = re.compile("[0-9]{1,9}", re.ASCII)
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Tls:
    """An address of the network. Nothing is ever answered there without TLS, and nobody without a token."""

    host: str
    port: int
    """0: any that is free."""
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class GroupSocket:
    """A socket that users of a group can reach: in a directory of its own, since in the state's are secrets."""

    directory: Path
    gid: int

    @property
    def path(self) -> Path:
        return self.directory / SOCKET_NAME


def group_socket_of(directory: Path | None, group: str | None) -> GroupSocket | None:
    """The two settings as one; the directory is made when it is not there.

    :raises InvalidInput: ``serve.group_socket``: one is missing, there is no such group, or others could write there
    """
    if directory is None and group is None:
        return None
    if directory is None or group is None:
        raise _no_group_socket("a socket for a group needs both, the group and a directory")
    try:
        gid = int(group) if _GID.fullmatch(group) else grp.getgrnam(group).gr_gid
    except (KeyError, ValueError) as error:
        raise _no_group_socket(f"there is no group {ascii(group)[:40]}") from error
    shown = ascii(str(directory))[1:-1]
    try:
        if not directory.exists():
            directory.mkdir(mode=0o700)
            os.chown(directory, -1, gid)
            directory.chmod(0o710)
        status = directory.stat()
    except (OSError, ValueError) as error:
        raise _no_group_socket(f"{shown} cannot be used: {why_unreadable(error)}") from error
    if status.st_uid != os.geteuid() or status.st_mode & 0o022 or status.st_mode & 0o170000 != 0o040000:
        raise _no_group_socket(f"{shown} is no directory in which only the server's user may write")
    return GroupSocket(directory=directory, gid=gid)


def _no_group_socket(why: str) -> InvalidInput:
    return InvalidInput(
        "serve.group_socket", why, hint="for example --socket-directory /run/vgpuctl --socket-group vgpuctl"
    )


def tls_of(listen: str | None, certificate: Path | None, key: Path | None) -> Tls | None:
    """The three settings as one; None when there is nothing to listen to.

    :raises InvalidInput: ``serve.listen_invalid``, ``serve.tls_needed``, ``serve.tls_unusable``
    """
    if listen is None:
        return None
    parts = _ADDRESS.fullmatch(listen)
    if parts is None or int(parts["port"]) > 65535:
        raise InvalidInput(
            "serve.listen_invalid",
            f"{ascii(listen)[:60]} is not an address",
            hint="HOST:PORT, for example 0.0.0.0:8443",
        )
    if certificate is None or key is None:
        raise InvalidInput(
            "serve.tls_needed",
            "listening on the network needs a certificate and its key",
            hint="--tls-cert FILE --tls-key FILE",
        )
    for path in (certificate, key):
        try:
            open_regular(path).close()
        except (OSError, ValueError) as error:
            raise _tls_unusable(f"cannot read {ascii(str(path))[1:-1]}: {why_unreadable(error)}", str(error)) from error
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        why = f"{ascii(str(certificate))[1:-1]} and {ascii(str(key))[1:-1]} are no certificate and its key"
        raise _tls_unusable(why, str(error)) from error
    return Tls(host=parts["host"].strip("[]"), port=int(parts["port"]), certificate=certificate, key=key)


def _tls_unusable(why: str, details: str) -> InvalidInput:
    hint = "--tls-cert and --tls-key name PEM files; the key must not need a password"
    return InvalidInput("serve.tls_unusable", why, hint=hint, details=details)


@contextmanager
def unix_socket(path: Path, gid: int | None = None) -> Iterator[Listener]:
    """A socket that only its owner (and root) can reach, and the group's users when there is one.

    The lock says that a file in the way is a leftover.
    """
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with Listener(made, ConnectionLimit(), KEPT_BACK) if gid is None else Listener(made, group_limit()) as listener:
        bind_for_owner(listener, path)
        if gid is not None:
            os.chown(path, -1, gid)
            path.chmod(0o660)
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def network_socket(tls: Tls) -> Iterator[Listener]:
    """:raises Fatal: ``serve.cannot_listen``"""
    family = socket.AF_INET6 if ":" in tls.host else socket.AF_INET
    try:
        made = socket.create_server((tls.host, tls.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Fatal(
            "serve.cannot_listen",
            f"cannot listen on {tls.host} port {tls.port}: {error.strerror or error}",
            hint="is the port taken, is the address one of this machine's?",
        ) from error
    with Listener(made, network_limit()) as listener:
        yield listener
