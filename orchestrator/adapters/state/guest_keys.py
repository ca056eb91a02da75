# SPDX-License-Identifier: Apache-2.0
"""Keys by which roles are run in guests: each VM has an authority of its own, which its guest trusts, and each run a
key that the authority signs. Nothing is stored: the authority is derived from the origin of the database's keys."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    SSHCertificateBuilder,
    SSHCertificateType,
)

from orchestrator.adapters.state.keys import write_private
from orchestrator.core.guest.guest import GUEST_USER
from orchestrator.core.tenancy.key_ring import origin_of
from orchestrator.ports.clock import Clock

_EARLIER_S: Final = 86400
"""A guest's clock may be behind, by a time zone for instance."""


class GuestKeys:
    """``ring``: the database's keys (core/tenancy/key_ring.py)."""

    def __init__(self, ring: bytes, clock: Clock) -> None:
        self._secret = origin_of(ring)
        self._clock = clock

    def authority(self, vm: str) -> str:
        """The line of authorized_keys (sshd(8)) by which the guest of the VM lets in who has a certificate.
        Certificates have the account's name as their only principal."""
        return f'cert-authority,principals="{GUEST_USER}" {_public(self._private(vm))} vgpuctl'

    def credential(self, path: Path, vm: str, run: str, lasts_s: float) -> None:
        """A new private key in the file, mode 0600, and beside it its certificate as ssh looks for it. The certificate
        names the run, so that the guest's own log does."""
        key, now = Ed25519PrivateKey.generate(), self._clock.now()
        certificate = (
            SSHCertificateBuilder()
            .public_key(key.public_key())
            .serial(0)
            .type(SSHCertificateType.USER)
            .key_id(f"vgpuctl {run}".encode())
            .valid_principals([GUEST_USER.encode()])
            .valid_after(int(now) - _EARLIER_S)
            .valid_before(int(now + lasts_s) + _EARLIER_S)
            .add_extension(b"permit-pty", b"")
            .sign(self._private(vm))
        )
        write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        path.with_name(f"{path.name}-cert.pub").write_bytes(certificate.public_bytes() + b"\n")

    def _private(self, vm: str) -> Ed25519PrivateKey:
        drawn = hmac.new(self._secret, f"guest {vm}".encode(), hashlib.sha256).digest()
        return Ed25519PrivateKey.from_private_bytes(drawn)


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
