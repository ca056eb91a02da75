# SPDX-License-Identifier: Apache-2.0
"""What users hand to their guests: SSH public keys and user data. Checked here, interpreted by the guest alone."""

from __future__ import annotations

import base64
import binascii
import re
import struct
import zlib
from typing import Final

from orchestrator.core.errors import InvalidInput
from orchestrator.core.vms.vm import MAX_USER_DATA_BYTES

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
_CLOUD_CONFIG = re.compile(r"#cloud-config(\s.*)?", re.ASCII)
_BYTE_ORDER_MARK: Final = "\ufeff"
_JINJA = re.compile(r"##\s*template:\s*jinja", re.ASCII | re.IGNORECASE)
_MIME = re.compile(r"(?:MIME-Version:[^\n]*\n)?Content-Type: multipart/", re.ASCII | re.IGNORECASE)
"""As ``cloud-init devel make-mime`` and ``write-mime-multipart`` write it, the kind first or second."""
_GZIP: Final = b"\x1f\x8b\x08"
_GZIP_IN_BASE64: Final = "H4sI"
_GZIP_WINDOW: Final = 31
"""zlib's largest window, with the format of gzip around it."""
_OF_WINDOWS = re.compile(r"#ps1(_sysnative|_x86)?|rem cmd", re.ASCII)
"""Scripts as cloudbase-init knows them, alone on their line."""
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


def plain_user_data(text: str) -> str:
    """What cloud-init gets: the text itself, or what it holds as gzip in base64.

    :raises InvalidInput: ``user_data.too_large``, ``user_data.unsupported``
    """
    if len(text.encode(errors="surrogatepass")) > MAX_USER_DATA_BYTES:
        raise _too_large()
    plain = _decoded(text) if text.startswith(_GZIP_IN_BASE64) else text
    if not _is_text(plain):
        raise InvalidInput(
            "user_data.unsupported",
            "user data holds characters that are not text",
            hint="give UTF-8 text without control characters",
        )
    if plain.startswith(_BYTE_ORDER_MARK):
        raise InvalidInput(
            "user_data.unsupported",
            "user data starts with a byte order mark, and cloud-init does not see what it is",
            hint="save it as UTF-8 without one",
        )
    plain = plain.lstrip("\r\n")  # as cloud-init reads it: what comes out of templates often begins with an empty line
    first = plain.split("\n", 1)[0].rstrip("\r ")
    if _CLOUD_CONFIG.fullmatch(first) or first.startswith("#!") or _OF_WINDOWS.fullmatch(first):
        return plain
    if _JINJA.fullmatch(first) or _MIME.match(plain):
        return plain
    raise InvalidInput(
        "user_data.unsupported",
        "user data starts neither with #cloud-config nor with #!",
        hint="its first line says what it is: these, '## template: jinja' or the head of MIME parts; includes and "
        "archives are not passed on",
    )


def unpacked_user_data(content: bytes) -> bytes:
    """The content, without gzip around it.

    :raises InvalidInput: ``user_data.too_large``, ``user_data.unsupported``
    """
    if not content.startswith(_GZIP):
        return content
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = stream.decompress(content, MAX_USER_DATA_BYTES + 1)
    except zlib.error as error:
        raise _damaged() from error
    if len(plain) > MAX_USER_DATA_BYTES:
        raise _too_large()
    if not stream.eof or stream.unused_data:
        raise _damaged()
    return plain


def _decoded(text: str) -> str:
    try:
        return unpacked_user_data(base64.b64decode("".join(text.split()), validate=True)).decode()
    except ValueError as error:
        raise _damaged() from error


def _too_large() -> InvalidInput:
    return InvalidInput(
        "user_data.too_large",
        f"user data has more than {MAX_USER_DATA_BYTES // 1024}KiB",
        hint="let it fetch the rest when the VM starts",
    )


def _damaged() -> InvalidInput:
    return InvalidInput(
        "user_data.unsupported",
        "user data is packed by gzip, and cut, damaged or not text",
        hint="'gzip -t' says whether the file is whole",
    )


def _is_text(text: str) -> bool:
    return all(char in "\t\r\n" or (char >= " " and not 0xD800 <= ord(char) <= 0xDFFF) for char in text)
