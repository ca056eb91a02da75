# SPDX-License-Identifier: Apache-2.0
"""Controllers that share a database: where each is reached by the others, and how a new one is invited."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256

from orchestrator.core.errors import InvalidInput

_PREFIX = "vgpuctl-join_"
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[0-9A-Za-z.-]{1,255}):[0-9]{1,5}", re.ASCII)
_CERTIFICATE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_TEXT = 1024
MAX_INVITATION_S = 24 * 3600
MAX_HOSTS_ASKED = 60
"""For whose readings one controller asks another in one request: bodies are short where no token is shown."""
_PROCESS = "~"


def process_of(controller: str, number: str) -> str:
    """Name of one process of a controller."""
    return f"{controller}{_PROCESS}{number}"


def controller_of(process: str) -> str:
    """Whose process it is."""
    return process.partition(_PROCESS)[0]


def turn_of(host: str, name: str, living: Collection[str]) -> int:
    """How many of the controllers that live come before ``name`` in listening to the host; 0: it is the first. When a
    controller goes, hosts of others stay with them."""
    return sum(_rank(host, other) < _rank(host, name) for other in living)


def _rank(host: str, controller: str) -> bytes:
    return sha256(f"{host}\0{controller}".encode()).digest()


@dataclass(frozen=True, kw_only=True)
class Door:
    """Where the other controllers reach one, and how they know it."""

    name: str
    address: str
    """``HOST:PORT`` of its API, over TLS."""
    certificate: str
    """SHA-256 of the certificate that it shows there (DER), in hexadecimal."""
    credential: str
    """SHA-256 of the secret that it shows to the others."""


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What ``vgpuctl server join`` is given. Good once, and not for long."""

    address: str
    certificate: str
    id: str
    secret: str

    def text(self) -> str:
        parts = json.dumps([self.address, self.certificate, self.id, self.secret])
        return _PREFIX + base64.urlsafe_b64encode(parts.encode()).decode().rstrip("=")


def read_invitation(text: str) -> Invitation:
    """:raises InvalidInput: ``controller.token_invalid``"""
    try:
        if not text.startswith(_PREFIX) or len(text) > _MAX_TEXT:
            raise _no_token()
        packed = text.removeprefix(_PREFIX)
        parts = json.loads(base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _no_token() from error
    if not (isinstance(parts, list) and len(parts) == 4 and all(isinstance(part, str) for part in parts)):
        raise _no_token()
    address, certificate, invitation_id, secret = parts
    if _ADDRESS.fullmatch(address) is None or _CERTIFICATE.fullmatch(certificate) is None:
        raise _no_token()
    return Invitation(address=address, certificate=certificate, id=invitation_id, secret=secret)


def _no_token() -> InvalidInput:
    return InvalidInput(
        "controller.token_invalid", "this is no token to join with", hint="'vgpuctl server invite' makes one"
    )
