# SPDX-License-Identifier: Apache-2.0
"""A key and a certificate for one end of one move between two hosts: each trusts the other's and no authority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from orchestrator.core.actions.live_move import MoveKey

_VALID: Final = timedelta(days=7)
"""Either side, as clocks of hosts differ; it is used once, and known to two hosts for one move."""


def new_move_key() -> MoveKey:
    """Of one end."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vgpuctl move")])
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(name, name, key.public_key(), serial, now - _VALID, now + _VALID)
    certificate = builder.sign(key, SHA256())
    return MoveKey(
        certificate=certificate.public_bytes(Encoding.PEM).decode(),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
