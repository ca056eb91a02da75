# SPDX-License-Identifier: Apache-2.0
"""Files that people name on the command line, read whole and with a bound."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from errno import EBADF
from pathlib import Path
from typing import Final

from orchestrator.core.errors import InvalidInput, why_unreadable, why_unwritable
from orchestrator.core.vms.user_data import unpacked_user_data
from orchestrator.core.vms.vm import MAX_USER_DATA_BYTES
from orchestrator.regular_file import read_at_most

MAX_KEY_BYTES: Final = 64 * 1024
STDIN: Final = "-"
_USER_DATA: Final = "user_data"
_BOM: Final = "\ufeff"


def read_text(path: Path, *, what: str, max_bytes: int) -> str:
    """The UTF-8 text of a regular file, or of standard input for ``-``.

    :raises InvalidInput: ``<what>.unreadable``, ``<what>.too_large``, ``<what>.not_text``
    """
    return _decoded(_content(path, what=what, max_bytes=max_bytes), path, what)


def read_keys(path: Path) -> dict[str, str]:
    """A key of S3, of a file as AWS's tools have it; of its only section, or of ``[default]``.

    :raises InvalidInput: ``credentials_file.unreadable``, …, ``credentials_file.invalid``
    """
    text = read_text(path, what="credentials_file", max_bytes=MAX_KEY_BYTES)
    parser = ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(text)
        names = parser.sections()
        section = parser[names[0] if len(names) == 1 else "default"]
        return {"access_key": section["aws_access_key_id"], "secret_key": section["aws_secret_access_key"]}
    except (ConfigError, KeyError):
        pass  # what it says of it would have lines of the file
    hint = "[default] in one line, aws_access_key_id = … and aws_secret_access_key = … in the next two"
    raise InvalidInput("credentials_file.invalid", f"{_name(path)} holds no key of S3", hint=hint)


def read_user_data(path: Path) -> str:
    """The same of a file for cloud-init, which may be packed by gzip.

    :raises InvalidInput: ``user_data.…``
    """
    content = _content(path, what=_USER_DATA, max_bytes=MAX_USER_DATA_BYTES)
    return _decoded(unpacked_user_data(content), path, _USER_DATA)


def _content(path: Path, *, what: str, max_bytes: int) -> bytes:
    try:
        content = _typed(max_bytes) if str(path) == STDIN else read_at_most(path, max_bytes)
    except (OSError, ValueError) as error:
        why = f"cannot read {_name(path)}: {why_unreadable(error)}"
        raise InvalidInput(f"{what}.unreadable", why, hint=_hint(what)) from error
    if content is None:
        why = f"{_name(path)} is over {max_bytes} bytes"
        raise InvalidInput(f"{what}.too_large", why, hint=f"give one of at most {max_bytes} bytes")
    return content


def _decoded(content: bytes, path: Path, what: str) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{what}.not_text", f"{_name(path)} is not UTF-8 text", hint=_hint(what)) from error
    return text.removeprefix(_BOM)


def files_of(paths: Sequence[Path], *, what: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files themselves, and those of a directory that end so, by name; not those of directories in it.

    :raises InvalidInput: ``<what>.unreadable``: a directory has none or cannot be read; ``cli.usage``: named twice
    """
    files: list[Path] = []
    for path in paths:
        if str(path) == STDIN or not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(entry for entry in path.iterdir() if entry.suffix in suffixes and not entry.is_dir())
        except OSError as error:
            why = f"cannot read {_name(path)}: {why_unreadable(error)}"
            raise InvalidInput(f"{what}.unreadable", why, hint=_hint(what)) from error
        if not inside:
            why = f"{_name(path)} has no file that ends in {' or '.join(suffixes)}"
            raise InvalidInput(f"{what}.unreadable", why, hint=_hint(what))
        files += inside
    again = next((path for path, times in Counter(files).items() if times > 1), None)
    if again is not None:
        raise InvalidInput("cli.usage", f"{_name(again)} is given more than once", hint="give it once")
    return files


def write_new(files: Mapping[Path, tuple[bytes, int]], *, what: str, named: str = "directory") -> None:
    """Each with its mode, all of them or none; what is there already stays as it is. ``named``: what people name of
    where they go.

    :raises InvalidInput: ``<what>.unwritable``
    """
    made: list[Path] = []
    try:
        for path, (content, mode) in files.items():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            made.append(path)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
    except (OSError, ValueError) as error:
        for path_made in made:
            path_made.unlink(missing_ok=True)
        missing = isinstance(error, FileNotFoundError) and not path.parent.exists()
        hint = (
            f"'mkdir -p {shlex.quote(str(path.parent))}' makes its directory"
            if missing
            else f"name another {named}, or move what is there away"
        )
        raise InvalidInput(
            f"{what}.unwritable", f"cannot make {_name(path)}: {why_unwritable(error)}", hint=hint
        ) from error


def write_private(path: Path, text: str) -> None:
    """In one piece, in place of what was there, and never others' to read; a device or a pipe is written to and stays.

    :raises OSError:
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text)
        return
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as stream:
            stream.write(text)
        scratch.replace(path)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


def _typed(max_bytes: int) -> bytes | None:
    """What comes on standard input; None: it is more than that."""
    if sys.stdin is None:
        raise OSError(EBADF, "standard input is closed")
    content = sys.stdin.buffer.read(max_bytes + 1)
    return content if len(content) <= max_bytes else None


def is_key_text(given: str) -> bool:
    """Whether it is a public key itself and no name of a file."""
    return given.startswith(("ssh-", "ecdsa-", "sk-")) and " " in given.strip()


def read_ssh_keys(given: str) -> list[str]:
    """The OpenSSH public key lines of a ``.pub`` or ``authorized_keys`` file, or the one that was given itself.

    :raises InvalidInput: ``ssh_key.…``; a private key is refused before it leaves this process
    """
    if is_key_text(given):
        return [given.strip()]
    path = Path(given)
    text = read_text(path, what="ssh_key", max_bytes=MAX_KEY_BYTES)
    if "PRIVATE KEY" in text:
        raise InvalidInput(
            "ssh_key.private", f"{_name(path)} is a private key", hint="give the public one, it ends in .pub"
        )
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        hint = "give the .pub file of a key; 'ssh-keygen -t ed25519' makes a key"
        raise InvalidInput("ssh_key.empty", f"{_name(path)} has no key in it", hint=hint)
    return keys


def _name(path: Path) -> str:
    return ascii(str(path))[1:-1]


def _hint(what: str) -> str:
    """``file``: it is named without an option."""
    return "name a text file" if what == "file" else f"give a text file for --{what.replace('_', '-')}"
