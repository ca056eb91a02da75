# SPDX-License-Identifier: Apache-2.0
"""A certificate and its key for a server's address, by itself or by the site's own authority."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orchestrator.core.errors import InvalidInput, why_unreadable
from orchestrator.regular_file import MAX_CERTIFICATES_BYTES, read_at_most

MAX_NAMES: Final = 50
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z)(\*\.)?{_LABEL}(\.{_LABEL})*", re.ASCII | re.IGNORECASE)
_MAX_COMMON_NAME: Final = 64
_EARLIER: Final = timedelta(minutes=5)
"""Clocks of clients may be behind."""

AuthorityKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Who signs for the site."""

    certificate: x509.Certificate
    key: AuthorityKey


@dataclass(frozen=True, kw_only=True)
class NewCertificate:
    """PEM texts; ``chain`` is the certificate, and its authority's where that is not a root."""

    chain: bytes
    key: bytes
    ends_at: datetime
    sha256: str
    """As browsers and ``openssl x509 -fingerprint -sha256`` show it."""


def new_certificate(
    names: Sequence[str], lifetime: timedelta, now: datetime, authority: Authority | None = None
) -> NewCertificate:
    """For these DNS names and addresses. ``authority`` None: it signs itself; it ends with its authority's at the
    latest.

    :raises InvalidInput: ``certificate.name_invalid``
    """
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:_MAX_COMMON_NAME])])
    issuer, end = subject, now + lifetime
    if authority is not None:
        issuer, end = authority.certificate.subject, min(end, authority.certificate.not_valid_after_utc)
    signing: AuthorityKey = key if authority is None else authority.key
    built = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - _EARLIER, end)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .sign(signing, None if isinstance(signing, ed25519.Ed25519PrivateKey) else SHA256())
    )
    between = [] if authority is None or _signs_itself(authority.certificate) else [authority.certificate]
    return NewCertificate(
        chain=b"".join(part.public_bytes(Encoding.PEM) for part in (built, *between)),
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ends_at=end,
        sha256=built.fingerprint(SHA256()).hex(":").upper(),
    )


def read_authority(certificate: Path, key: Path, now: datetime) -> Authority:
    """:raises InvalidInput: ``certificate.ca_unusable``"""
    try:
        authority = x509.load_pem_x509_certificate(_read(certificate))
        opened = load_pem_private_key(_read(key), None)
    except TypeError as error:  # of the library: it is encrypted
        raise _unusable(
            "its key has a password", f"openssl pkey -in {shlex.quote(str(key))} -out open.key, and remove that after"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unusable("its files are not a certificate and a private key in PEM") from error
    if not isinstance(opened, AuthorityKey):
        raise _unusable("its key is neither RSA, ECDSA nor Ed25519")
    if opened.public_key() != authority.public_key():
        raise _unusable("the key is not the one of its certificate")
    if not _may_sign(authority):
        raise _unusable("its certificate is not that of an authority (CA:TRUE)")
    if authority.not_valid_after_utc <= now:
        raise _unusable("its certificate is over")
    return Authority(certificate=authority, key=opened)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        pass
    if _DNS_NAME.fullmatch(name) is None or name.rpartition(".")[2].isdecimal():
        raise InvalidInput(
            "certificate.name_invalid",
            f"{name[:60]!a} is no DNS name and no address",
            hint="write what clients connect to, without https:// and port: pool.example.org 192.0.2.7",
        )
    return x509.DNSName(name)


def _read(path: Path) -> bytes:
    try:
        content = read_at_most(path, MAX_CERTIFICATES_BYTES)
    except (OSError, ValueError) as error:
        raise _unusable(f"cannot read {str(path)!a}: {why_unreadable(error)}") from error
    if content is None:
        raise _unusable(f"{str(path)!a} is over {MAX_CERTIFICATES_BYTES} bytes")
    return content


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _signs_itself(certificate: x509.Certificate) -> bool:
    return certificate.issuer == certificate.subject


def _unusable(
    why: str, hint: str = "--ca-cert and --ca-key name PEM files of the authority that signs"
) -> InvalidInput:
    return InvalidInput("certificate.ca_unusable", f"the authority cannot sign: {why}", hint=hint)
