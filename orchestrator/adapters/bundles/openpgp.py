# SPDX-License-Identifier: Apache-2.0
"""Signatures of OpenPGP (RFC 9580), checked by Sequoia: beside a file, or inside of a deb or an rpm.

Inside of an rpm it is over the header, which has the payload's SHA-256. Inside of a deb it is what ``debsigs`` writes:
a member ``_gpgorigin`` over the contents of those before it, one after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from pysequoia import Cert, Decrypted, Sig, verify

from orchestrator.adapters.bundles.packages import AR_MAGIC, RPM_MAGIC, ar_members, rpm_headers
from orchestrator.core.errors import InvalidInput

_SIGNATURE: Final = "-----BEGIN PGP SIGNATURE-----"
_RPM_SIGNATURES: Final = (268, 267)
"""RPMTAG_RSAHEADER, RPMTAG_DSAHEADER: over the header; the second also has those of other kinds of keys."""
_PAYLOAD_DIGEST: Final = 5092
_DEB_SIGNATURE: Final = "_gpgorigin"
_MAX_SIGNATURE: Final = 16 * 1024
_CHUNK: Final = 1 << 20
_KEY_ID_DIGITS: Final = 16


@dataclass(frozen=True)
class Signed:
    """A signature that was right. ``key_id``: 16 hexadecimal digits."""

    key_id: str
    comment: str


def check_detached(path: Path, signature: str, key: str) -> Signed:
    """``signature``, ``key``: armored, as ``gpg --armor`` writes them.

    :raises InvalidInput: ``bundle.key_invalid``, ``bundle.signature_invalid``, ``bundle.signature_wrong``
    """
    cert = _cert(key)
    if not signature.lstrip().startswith(_SIGNATURE):
        raise _bad_signature("this is no armored signature of OpenPGP's")
    return _checked(cert, signature.encode(), lambda store, sig: verify(file=path, store=store, signature=sig))


def check_inside(path: Path, key: str) -> Signed:
    """Of a deb or an rpm that carries its signature.

    :raises InvalidInput: as :func:`check_detached`, ``bundle.not_signed``, ``bundle.unknown_content``
    """
    cert = _cert(key)
    with path.open("rb") as file:
        first = file.read(len(AR_MAGIC))
        if first == AR_MAGIC:
            return _deb(file, path, cert)
        if first.startswith(RPM_MAGIC):
            return _rpm(file, cert)
    raise _not_signed("only deb and rpm files carry a signature")


def _rpm(file: BufferedReader, cert: Cert) -> Signed:
    signatures, package = rpm_headers(file)
    signature = next((content for tag in _RPM_SIGNATURES if (content := signatures.binary(tag)) is not None), None)
    if signature is None:
        raise _not_signed("the rpm has no signature over its header")
    signed = _checked(cert, signature, lambda store, sig: verify(bytes=package.content, store=store, signature=sig))
    if hashlib.file_digest(file, "sha256").hexdigest() != package.text(_PAYLOAD_DIGEST):
        raise _wrong("the rpm's payload is not what its signed header says")
    return signed


def _deb(file: BinaryIO, path: Path, cert: Cert) -> Signed:
    """No member may stand between those that are signed: the package manager would read it."""
    members = list(ar_members(file))
    names = [member.stem for member in members]
    if names != ["debian-binary", "control", "data", _DEB_SIGNATURE] or members[-1].size > _MAX_SIGNATURE:
        raise _not_signed("the deb has no signature of debsigs' behind its contents")
    file.seek(members[-1].start)
    signature = file.read(members[-1].size)
    together = path.with_suffix(".signed.part")
    try:
        with together.open("xb") as joined:
            for member in members[:-1]:
                _copy(file, member.start, member.size, joined)
        return _checked(cert, signature, lambda store, sig: verify(file=together, store=store, signature=sig))
    finally:
        together.unlink(missing_ok=True)


def _copy(file: BinaryIO, start: int, size: int, into: BinaryIO) -> None:
    file.seek(start)
    while size > 0 and (chunk := file.read(min(size, _CHUNK))):
        into.write(chunk)
        size -= len(chunk)


Store = Callable[[list[str]], list[Cert]]


def _checked(cert: Cert, signature: bytes, check: Callable[[Store, Sig], Decrypted]) -> Signed:
    try:
        sig = Sig.from_bytes(signature)
    except (RuntimeError, ValueError) as error:
        raise _bad_signature("this is no signature of OpenPGP's") from error
    try:
        check(lambda _wanted: [cert], sig)
    except (RuntimeError, ValueError) as error:
        by = (sig.issuer_key_id or "nobody").upper()
        raise _wrong(f"it does not belong to this file, or key {by} is none of {_name(cert)}'s or too weak") from error
    return Signed(key_id=cert.fingerprint[-_KEY_ID_DIGITS:].upper(), comment=f"OpenPGP, {_name(cert)}")


def _name(cert: Cert) -> str:
    """A key that the policy refuses, as one of RSA with 1024 bits, has no names that could be believed."""
    try:
        return next((ascii(str(user_id))[1:-1][:120] for user_id in cert.user_ids), "nobody")
    except (RuntimeError, ValueError):
        return "a key that is too weak"


def _cert(text: str) -> Cert:
    try:
        certs = Cert.split_bytes(text.encode())
    except (RuntimeError, ValueError) as error:
        raise _bad_key("this is no public key of OpenPGP's") from error
    if len(certs) != 1:
        raise _bad_key(f"the file has {len(certs)} keys")
    return certs[0]


def _bad_key(why: str) -> InvalidInput:
    hint = "give one public key, as 'gpg --armor --export KEY' writes it"
    return InvalidInput("bundle.key_invalid", why, hint=hint)


def _bad_signature(why: str) -> InvalidInput:
    return InvalidInput(
        "bundle.signature_invalid", why, hint="sign with 'gpg --armor --detach-sign FILE' and give FILE.asc"
    )


def _wrong(why: str) -> InvalidInput:
    return InvalidInput(
        "bundle.signature_wrong",
        f"the signature is wrong: {why}",
        hint="look which key signed it; if that is the right one, somebody changed the file. Nothing was kept of it",
    )


def _not_signed(why: str) -> InvalidInput:
    hint = "sign the file itself and give --signature"
    return InvalidInput("bundle.not_signed", why, hint=hint)
