# SPDX-License-Identifier: Apache-2.0
"""What users hand to their guests: SSH public keys and user data. Checked here, interpreted by the guest alone."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Literal

from orchestrator.core.errors import InvalidInput
from orchestrator.core.vm import MAX_USER_DATA_BYTES

UserDataType = Literal["text/cloud-config", "text/x-shellscript", "text/jinja2", "multipart/mixed"]

KEY_TYPES = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
_JINJA = re.compile(r"##\s*template:\s*jinja", re.ASCII | re.IGNORECASE)
_MIME = re.compile(r"(?:MIME-Version:[^\n]*\n)?Content-Type: multipart/", re.ASCII | re.IGNORECASE)
"""As ``cloud-init devel make-mime`` and ``write-mime-multipart`` write it, the kind first or second."""
_MAX_KEY = 16384
_COMMENT = re.compile(r"[\x20-\x7e]{0,200}", re.ASCII)


def check_ssh_key(line: str) -> str:
    """One public key line without options, its comment kept.

    :raises InvalidInput: ``ssh_key.invalid``
    """
    parts = line.strip(" ").split(" ", 2)
    if len(line) > _MAX_KEY or len(parts) < 2 or parts[0] not in KEY_TYPES:
        raise _bad_key(line)
    comment = parts[2] if len(parts) == 3 else ""
    try:
        blob = base64.b64decode(parts[1], validate=True)
        (size,) = struct.unpack(">I", blob[:4])
    except (binascii.Error, ValueError, struct.error) as error:
        raise _bad_key(line) from error
    if blob[4 : 4 + size] != parts[0].encode() or len(blob) <= 4 + size or _COMMENT.fullmatch(comment) is None:
        raise _bad_key(line)
    return " ".join(part for part in (parts[0], parts[1], comment) if part)


def _bad_key(line: str) -> InvalidInput:
    return InvalidInput(
        "ssh_key.invalid",
        f"{ascii(line)[:60]} is not an SSH public key",
        hint="give the one line of a .pub file, without options before the key type",
    )


def user_data_type(text: str) -> UserDataType:
    """What the user data is, by its first line.

    :raises InvalidInput: ``user_data.too_large``, ``user_data.unsupported``
    """
    if len(text.encode(errors="surrogatepass")) > MAX_USER_DATA_BYTES:
        raise InvalidInput(
            "user_data.too_large",
            f"user data has more than {MAX_USER_DATA_BYTES // 1024}KiB",
            hint="let it fetch the rest when the VM starts",
        )
    if not _is_text(text):
        raise InvalidInput(
            "user_data.unsupported",
            "user data holds characters that are not text",
            hint="give UTF-8 text without control characters",
        )
    first = text.split("\n", 1)[0].rstrip("\r ")
    if first == "#cloud-config":
        return "text/cloud-config"
    if first.startswith("#!"):
        return "text/x-shellscript"
    if _JINJA.fullmatch(first):
        return "text/jinja2"
    if _MIME.match(text):
        return "multipart/mixed"
    raise InvalidInput(
        "user_data.unsupported",
        "user data starts neither with #cloud-config nor with #!",
        hint="its first line says what it is: these, '## template: jinja' or the head of MIME parts; includes and "
        "archives are not passed on",
    )


def _is_text(text: str) -> bool:
    return all(char in "\t\r\n" or (char >= " " and not 0xD800 <= ord(char) <= 0xDFFF) for char in text)
