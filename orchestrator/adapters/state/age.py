# SPDX-License-Identifier: Apache-2.0
"""Files encrypted for X25519 keys of age (https://age-encryption.org/v1): ``age`` itself reads and writes the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import pyrage
from pyrage.x25519 import Identity, Recipient

from orchestrator.core.errors import InvalidInput, why_unreadable
from orchestrator.regular_file import read_at_most

_BEGINS: Final = b"age-encryption.org/"
_MAX_IDENTITY_BYTES: Final = 64 * 1024


def recipients_of(texts: Sequence[str]) -> list[Recipient]:
    """:raises InvalidInput: ``backup.recipient_invalid``"""
    try:
        return [Recipient.from_str(text) for text in texts]
    except pyrage.RecipientError as error:
        raise InvalidInput(
            "backup.recipient_invalid",
            "a recipient is no X25519 key of age",
            hint="'age-keygen -o key.txt' makes a pair; the recipient is the public key, age1…",
        ) from error


def identities_in(file: Path) -> list[Identity]:
    """The secret keys of a file as age-keygen writes it.

    :raises InvalidInput: ``backup.identity_invalid``
    """
    try:
        content = read_at_most(file, _MAX_IDENTITY_BYTES) or b""
        lines = [line.strip() for line in content.decode("ascii").splitlines()]
        identities = [Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except OSError as error:
        raise _no_identity(f"{file} cannot be read: {why_unreadable(error)}") from error
    except (ValueError, pyrage.IdentityError) as error:
        raise _no_identity(f"{file} holds something else than secret keys of age") from error
    if not identities:
        raise _no_identity(f"{file} holds no secret key of age")
    return identities


def _no_identity(why: str) -> InvalidInput:
    return InvalidInput("backup.identity_invalid", why, hint="name the file that 'age-keygen -o' wrote")


def is_encrypted(file: BinaryIO) -> bool:
    """Whether age wrote it; the file is at its beginning before and after."""
    begins = file.read(len(_BEGINS))
    file.seek(0)
    return begins == _BEGINS


def encrypt(plain: BinaryIO, sealed: BinaryIO, recipients: list[Recipient]) -> None:
    """Each of them alone can read it."""
    pyrage.encrypt_io(plain, sealed, recipients)


def decrypt(sealed: BinaryIO, plain: BinaryIO, identities: list[Identity]) -> None:
    """:raises InvalidInput: ``backup.other_identity``; :raises OSError: it was cut or changed"""
    try:
        pyrage.decrypt_io(sealed, plain, identities)
    except pyrage.DecryptError as error:
        raise InvalidInput(
            "backup.other_identity",
            "the backup cannot be decrypted with these keys",
            hint="give the identity of one of the recipients it was made for; or the file is damaged",
        ) from error
