# SPDX-License-Identifier: Apache-2.0
"""Signatures in minisign's format: Ed25519 over the file's BLAKE2b digest, and over the comment beside it.

The format is that of minisign's own page (jedisct1.github.io/minisign): lines of text around base64. The cryptography
is the library's.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from orchestrator.core.errors import InvalidInput

MAX_TEXT: Final = 8192
_UNTRUSTED: Final = "untrusted comment:"
_TRUSTED: Final = "trusted comment: "
_PREHASHED: Final = b"ED"
_WHOLE_FILE: Final = b"Ed"
_ID_BYTES: Final = 8
_KEY_HINT: Final = "give the public key that 'minisign -G' wrote (minisign.pub), or one of OpenPGP's, armored"
_SIGNATURE_HINT: Final = "sign with 'minisign -S -m FILE' and give FILE.minisig"


@dataclass(frozen=True)
class Signed:
    """A signature that was right. ``key_id``: 16 hexadecimal digits."""

    key_id: str
    comment: str


def check_signature(digest: bytes, signature: str, key: str) -> Signed:
    """``digest``: BLAKE2b of the file, 64 bytes; ``signature``, ``key``: texts of the ``.minisig`` and ``.pub`` file.

    :raises InvalidInput: ``bundle.key_invalid``, ``bundle.signature_invalid``, ``bundle.other_key``,
        ``bundle.signature_wrong``
    """
    key_id, public = _key(key)
    lines = signature.strip().splitlines()
    if len(signature) > MAX_TEXT or len(lines) != 4 or not lines[0].startswith(_UNTRUSTED):
        raise _bad_signature("this is no signature of minisign's")
    if not lines[2].startswith(_TRUSTED):
        raise _bad_signature("the signature has no trusted comment")
    signed = _decoded(lines[1], 2 + _ID_BYTES + 64)
    over_all = _decoded(lines[3], 64)
    if signed is None or over_all is None:
        raise _bad_signature("this is no signature of minisign's")
    if signed[:2] != _PREHASHED:
        raise _bad_signature("the signature is of the old form, over the whole file")
    if signed[2 : 2 + _ID_BYTES] != key_id:
        other = _shown(signed[2 : 2 + _ID_BYTES])
        raise InvalidInput(
            "bundle.other_key",
            f"it was signed with key {other}, not with {_shown(key_id)}",
            hint="give the key of whoever signed it, if you trust them",
        )
    comment = lines[2].removeprefix(_TRUSTED)
    try:
        public.verify(signed[2 + _ID_BYTES :], digest)
        public.verify(over_all, signed[2 + _ID_BYTES :] + comment.encode())
    except InvalidSignature as error:
        raise InvalidInput(
            "bundle.signature_wrong",
            "the signature does not belong to this file and its comment",
            hint="the file is damaged or somebody changed it; nothing was kept of it",
        ) from error
    return Signed(key_id=_shown(key_id), comment=comment)


def _key(text: str) -> tuple[bytes, Ed25519PublicKey]:
    lines = [line for line in text.strip().splitlines() if not line.startswith(_UNTRUSTED)]
    raw = _decoded(lines[0], 2 + _ID_BYTES + 32) if len(lines) == 1 and len(text) <= MAX_TEXT else None
    if raw is None or raw[:2] != _WHOLE_FILE:
        raise InvalidInput("bundle.key_invalid", "this is no public key of minisign's or OpenPGP's", hint=_KEY_HINT)
    return raw[2 : 2 + _ID_BYTES], Ed25519PublicKey.from_public_bytes(raw[2 + _ID_BYTES :])


def _decoded(line: str, size: int) -> bytes | None:
    try:
        raw = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size else None


def _shown(key_id: bytes) -> str:
    return f"{int.from_bytes(key_id, 'little'):016X}"


def _bad_signature(why: str) -> InvalidInput:
    return InvalidInput("bundle.signature_invalid", why, hint=_SIGNATURE_HINT)
