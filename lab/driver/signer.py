# SPDX-License-Identifier: Apache-2.0
"""A signer in minisign's format, as whoever gives out drivers has one."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


@dataclass(frozen=True)
class Signer:
    """Somebody with a key of minisign's."""

    key_id: bytes = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    secret: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def key(self) -> str:
        public = self.secret.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return f"untrusted comment: minisign public key\n{_base64(b'Ed' + self.key_id + public)}\n"

    def sign(self, content: bytes, comment: str = "timestamp:1", algorithm: bytes = b"ED") -> str:
        signature = self.secret.sign(hashlib.blake2b(content).digest() if algorithm == b"ED" else content)
        over_all = self.secret.sign(signature + comment.encode())
        first = _base64(algorithm + self.key_id + signature)
        return f"untrusted comment: signature\n{first}\ntrusted comment: {comment}\n{_base64(over_all)}\n"


def sign_file(path: Path) -> None:
    """Writes the signature and the key beside it, by a key that nobody keeps."""
    signer = Signer()
    path.with_name(f"{path.name}.minisig").write_text(signer.sign(path.read_bytes()))
    path.with_name("minisign.pub").write_text(signer.key)


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
