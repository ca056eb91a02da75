# SPDX-License-Identifier: Apache-2.0
"""Where the server can be reached: always a unix socket, and an address of the network when one is set, over TLS."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.client.location import SocketAddress
from orchestrator.core.errors import Fatal, InvalidInput

BACKLOG: Final = 256
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]+):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Tls:
    """An address of the network. Nothing is ever answered there without TLS, and nobody without a token."""

    host: str
    port: int
    """0: any that is free."""
    certificate: Path
    key: Path


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
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidInput(
            "serve.tls_unusable",
            f"{ascii(str(certificate))[1:-1]} and {ascii(str(key))[1:-1]} are no certificate and its key",
            hint="PEM files; the key must not need a password",
            details=str(error),
        ) from error
    return Tls(host=parts["host"].strip("[]"), port=int(parts["port"]), certificate=certificate, key=key)


@contextmanager
def unix_socket(path: Path) -> Iterator[socket.socket]:
    """A socket that only its owner (and root) can reach. The lock says that a file in the way is a leftover."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            with SocketAddress(path) as address:
                listener.bind(address)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def network_socket(tls: Tls) -> Iterator[socket.socket]:
    """:raises Fatal: ``serve.cannot_listen``"""
    family = socket.AF_INET6 if ":" in tls.host else socket.AF_INET
    try:
        listener = socket.create_server((tls.host, tls.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Fatal(
            "serve.cannot_listen",
            f"cannot listen on {tls.host} port {tls.port}: {error.strerror or error}",
            hint="is the port taken, is the address one of this machine's?",
        ) from error
    with listener:
        yield listener


def tell_service_manager(message: str) -> None:
    """``READY=1`` and ``STOPPING=1`` to systemd (sd_notify(3)); nothing without one."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    address = "\0" + where[1:] if where.startswith("@") else where
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.sendto(message.encode(), address)
