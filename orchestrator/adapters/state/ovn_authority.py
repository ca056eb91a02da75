# SPDX-License-Identifier: Apache-2.0
"""Who may speak to OVN's databases: two authorities, of central servers with their clients and of hosts. Nothing is
stored: both are derived from the origin of the database's keys, so all controllers have the same.

A host's certificate is not of the authority that the northbound believes: who takes a host over writes no networks."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.adapters.state.keys import write_private
from orchestrator.core.errors import InvalidInput
from orchestrator.core.ovn import CertificateFor
from orchestrator.core.tenancy.key_ring import origin_of
from orchestrator.ports.clock import Clock
from orchestrator.ports.overlay import SignedCertificate

LIFETIME: Final = timedelta(days=825)
_BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Of the authorities, whose certificates are the same each time: Ed25519 signs without chance (RFC 8032)."""
_ENDS: Final = datetime(2126, 1, 1, tzinfo=UTC)
_EARLIER: Final = timedelta(days=1)
"""A host's clock may be behind."""


class OvnAuthority:
    """Implements ports/overlay.OverlayAuthority. ``ring``: the database's keys (core/tenancy/key_ring.py)."""

    def __init__(self, ring: bytes, clock: Clock) -> None:
        self._secret = origin_of(ring)
        self._clock = clock

    def trusted(self, *whose: CertificateFor) -> str:
        """Certificates of these authorities, PEM."""
        return "".join(_pem(self._certificate(each)) for each in whose)

    def sign(self, whose: CertificateFor, name: str, request: str) -> SignedCertificate:
        """See :class:`orchestrator.ports.overlay.OverlayAuthority`."""
        try:
            signing_request = x509.load_pem_x509_csr(request.encode())
            sound = signing_request.is_signature_valid
            key = signing_request.public_key()
        except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
            raise _no_request() from error
        if not sound or not isinstance(key, ec.EllipticCurvePublicKey):
            raise _no_request()
        signed = self._signed(whose, name, key)
        return SignedCertificate(
            certificate=_pem(signed),
            central=self.trusted("central"),
            hosts=self.trusted("host"),
            ends_at=signed.not_valid_after_utc.timestamp(),
        )

    def own(self, path: Path, name: str) -> None:
        """A new key with its certificate, for a client of the databases on this machine: one file, mode 0600."""
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_private(path, private + _pem(self._signed("central", name, key.public_key())).encode())

    def _signed(self, whose: CertificateFor, name: str, key: CertificatePublicKeyTypes) -> x509.Certificate:
        authority, now = self._key(whose), datetime.fromtimestamp(self._clock.now(), UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if whose == "central" else [])]
        return (
            x509.CertificateBuilder(
                _name(whose), subject, key, x509.random_serial_number(), now - _EARLIER, now + LIFETIME
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
            .sign(authority, None)
        )

    def _certificate(self, whose: CertificateFor) -> x509.Certificate:
        key, name = self._key(whose), _name(whose)
        serial = int.from_bytes(hashlib.sha256(key.public_key().public_bytes_raw()).digest()[:8], "big") + 1
        return (
            x509.CertificateBuilder(name, name, key.public_key(), serial, _BEGAN, _ENDS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, None)
        )

    def _key(self, whose: CertificateFor) -> Ed25519PrivateKey:
        drawn = hmac.new(self._secret, f"ovn {whose}".encode(), hashlib.sha256).digest()
        return Ed25519PrivateKey.from_private_bytes(drawn)


def _name(whose: CertificateFor) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"vgpuctl OVN {whose}")])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode("ascii")


def _no_request() -> InvalidInput:
    return InvalidInput(
        "certificate.request_invalid",
        "that is no request for a certificate of an ECDSA key",
        hint="openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -subj /CN=gpu-1",
    )
