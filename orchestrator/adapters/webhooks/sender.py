# SPDX-License-Identifier: Apache-2.0
"""Sends events to addresses that people have named: over TLS, to an address that was judged, with a deadline.

Of the answer the status line is read and nothing else. No proxy is asked: it would resolve the name again.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchestrator.adapters.public_addresses import Address, Network, addresses_of, may_ask
from orchestrator.core.errors import InvalidInput, Retryable
from orchestrator.regular_file import read_certificates

LIMIT_S: Final = 10.0
"""For one request, from resolving to the answer's first line."""
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r\n]")
_MAX_LINE: Final = 4096


@dataclass(frozen=True)
class HttpsSender:
    """``allowed``: networks of addresses that are not public and may be sent to all the same. ``trust``: whom."""

    trust: ssl.SSLContext
    allowed: tuple[Network, ...] = ()

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """See :class:`orchestrator.ports.webhooks.WebhookSender`."""
        parts = urlsplit(url)
        host, port, deadline = str(parts.hostname), parts.port or 443, time.monotonic() + LIMIT_S
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        every = {"Host": parts.netloc, "Content-Length": str(len(body)), "Connection": "close", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        try:
            address = self._address(host, port)
            plain = socket.create_connection((str(address), port), timeout=_left_s(deadline))
            plain.settimeout(_left_s(deadline))
            with plain, self.trust.wrap_socket(plain, server_hostname=host) as secured:
                secured.settimeout(_left_s(deadline))
                secured.sendall(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body)
                status = _status(secured, deadline)
        except (OSError, ValueError, OverflowError) as error:
            raise _failed(f"{type(error).__name__}: {error}") from error
        if not 200 <= status < 300:
            raise _failed(f"it answered with status {status}" + (", a redirect" if 300 <= status < 400 else ""))

    def check(self, url: str) -> None:
        """See :class:`orchestrator.ports.webhooks.WebhookSender`."""
        host = str(urlsplit(url).hostname)
        with suppress(ValueError):  # a name may lead elsewhere tomorrow: it is judged at each request
            if not may_ask(ip_address(host), self.allowed):
                raise _refused(host)

    def _address(self, host: str, port: int) -> Address:
        """The first one of the name; all of them are judged."""
        addresses = addresses_of(host, port)
        if not all(may_ask(address, self.allowed) for address in addresses):
            raise _refused(host)
        return addresses[0]


def _refused(host: str) -> InvalidInput:
    return InvalidInput(
        "webhook.address_refused",
        f"{host[:80]!a} leads to an address that is not public",
        hint="the setting webhook_networks allows networks",
    )


def trusted(ca_file: Path | None) -> ssl.SSLContext:
    """``ca_file``: PEM file of whom to trust; None: whom this machine trusts.

    :raises InvalidInput: ``settings.invalid``
    """
    try:
        return ssl.create_default_context(cadata=None if ca_file is None else read_certificates(ca_file))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "settings.invalid",
            f"webhook_ca_file {ascii(str(ca_file))[:100]} holds no certificates to trust",
            hint="name a PEM file that the server can read",
        ) from error


def _status(secured: ssl.SSLSocket, deadline: float) -> int:
    """:raises OSError: none came in time; :raises ValueError: it is none"""
    line = b""
    while b"\n" not in line and len(line) < _MAX_LINE:
        secured.settimeout(_left_s(deadline))
        part = secured.recv(_MAX_LINE)
        if not part:
            break
        line += part
    matched = _STATUS.match(line)
    if matched is None:
        raise ValueError("the answer is not HTTP/1.1")
    return int(matched[1])


def _left_s(deadline: float) -> float:
    """:raises TimeoutError: none are left"""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _failed(why: str) -> Retryable:
    return Retryable(
        "webhook.failed", "the address did not take the event", hint="it is tried again by itself", details=why[:200]
    )
