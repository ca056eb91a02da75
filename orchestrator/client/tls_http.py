# SPDX-License-Identifier: Apache-2.0
"""To a server elsewhere, over TLS. Imported only when it is needed: loading TLS takes a while."""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path

from orchestrator.client.connection import CALL_TIMEOUT_S, Connection
from orchestrator.client.contexts import ClientContext
from orchestrator.client.http import Http
from orchestrator.client.token import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, token_headers
from orchestrator.core.errors import Denied, InvalidInput, why_unreadable
from orchestrator.regular_file import read_certificates

CONNECT_LIMIT_S = 10.0


class TlsHttp(Http):
    """The server's certificate is always checked, its name too."""

    way_out = "look whether it runs there and 'vgpuctl context list' has its address; or use another context"

    def __init__(self, context: ClientContext) -> None:
        self._address = context.address()
        host, port = self._address
        super().__init__(str(context.url), f"{host}:{port}", headers_of(context))
        self.trust = trust_of(context)

    def connected(self) -> socket.socket:
        """:raises OSError: nobody listens there

        :raises Denied: ``server.not_trusted``
        """
        plain = socket.create_connection(self._address, timeout=CONNECT_LIMIT_S)
        try:
            secured = self.trust.wrap_socket(plain, server_hostname=self._address[0])
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise not_trusted(self.place, error) from error
        except OSError:
            plain.close()
            raise
        secured.settimeout(CALL_TIMEOUT_S)
        return secured


def not_trusted(place: str, error: ssl.SSLCertVerificationError) -> Denied:
    """What a server is refused with whose certificate does not do."""
    return Denied(
        "server.not_trusted",
        f"the server at {place} is not one to trust: {error.verify_message}",
        hint="give its context the right --ca-file",
    )


def connect_to(context: ClientContext, retries: int = 0) -> Connection:
    """A connection to a server elsewhere; opened when first used."""
    return Connection(TlsHttp(context), retries)


def trust_of(context: ClientContext) -> ssl.SSLContext:
    """:raises InvalidInput: ``context.ca_unusable``"""
    try:
        trusted = None if context.ca_file is None else read_certificates(Path(context.ca_file))
        return ssl.create_default_context(cadata=trusted)
    except (OSError, ValueError) as error:
        closed = not isinstance(error, ssl.SSLError)
        raise InvalidInput(
            "context.ca_unusable",
            f"{ascii(context.ca_file)[1:-1]} "
            + (f"cannot be read: {why_unreadable(error)}" if closed else "holds no certificates to trust"),
            hint="a PEM file with the server's certificate or its root",
        ) from error


def headers_of(context: ClientContext) -> dict[str, str]:
    """The token of the environment, else the one of the context's file."""
    given = {name: os.environ[name] for name in (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE) if os.environ.get(name)}
    if not given and context.token_file is not None:
        given = {TOKEN_FILE_VARIABLE: context.token_file}
    return token_headers(given)
