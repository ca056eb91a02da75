# SPDX-License-Identifier: Apache-2.0
"""A signer by OpenPGP, as whoever gives out drivers has one."""

from __future__ import annotations

from pathlib import Path

from pysequoia import SignatureMode, Tsk, sign


class Signer:
    """Somebody with a key of OpenPGP's."""

    def __init__(self, name: str = "Site <ops@example.org>") -> None:
        self._secret = Tsk.generate(name)

    @property
    def key(self) -> str:
        """The public key, armored."""
        return str(self._secret.extract_certificate())

    def sign(self, content: bytes) -> str:
        """Armored."""
        return sign(self._secret.signer(), content, mode=SignatureMode.DETACHED).decode()


def sign_file(path: Path) -> None:
    """Writes the signature and the key beside it, by a key that nobody keeps."""
    signer = Signer()
    path.with_name(f"{path.name}.asc").write_text(signer.sign(path.read_bytes()))
    path.with_name("site-key.asc").write_text(signer.key)
