# SPDX-License-Identifier: Apache-2.0
"""The token a command shows to the server. It comes from the environment or a file, never from the arguments:
those are everybody's to read in the process list.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.core.errors import InvalidInput, why_unreadable

TOKEN_VARIABLE: Final = "VGPUCTL_TOKEN"  # noqa: S105 (a name)
TOKEN_FILE_VARIABLE: Final = "VGPUCTL_TOKEN_FILE"  # noqa: S105 (a name)
_MAX_BYTES: Final = 16 * 1024
"""What a login gives is longer than tokens of ours."""


def token_headers(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What goes with every request; nothing when no token is set: then the server goes by the uid.

    :raises InvalidInput: ``token.unreadable``, ``token.exposed``, ``token.malformed``
    """
    token = _token(os.environ if environment is None else environment)
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def check_token_file(path: Path) -> None:
    """:raises InvalidInput: ``token.unreadable``, ``token.exposed``, ``token.malformed``"""
    _checked(_read(path), str(path))


def without_token(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that acts for nobody."""
    return {name: value for name, value in environment.items() if name not in {TOKEN_VARIABLE, TOKEN_FILE_VARIABLE}}


def _token(environment: Mapping[str, str]) -> str | None:
    given, file = environment.get(TOKEN_VARIABLE), environment.get(TOKEN_FILE_VARIABLE)
    if given:
        return _checked(given, TOKEN_VARIABLE)
    return _checked(_read(Path(file)), file) if file else None


def _read(path: Path) -> str:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for somebody to write into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = f"cannot read {str(path)!a}: {why_unreadable(error)}"
        raise InvalidInput("token.unreadable", why, hint=_HINT) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise InvalidInput("token.unreadable", f"{str(path)!a} is not a regular file", hint=_HINT)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidInput("token.exposed", f"others may use {str(path)!a}", hint="take their rights: chmod 600")
        return os.read(descriptor, _MAX_BYTES).decode("latin-1")
    finally:
        os.close(descriptor)


def _checked(text: str, place: str) -> str:
    """A token goes into a header, where a line break would begin another one."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput("token.malformed", f"there is no token in {place!a}", hint=_HINT)
    return token


_HINT: Final = f"{TOKEN_FILE_VARIABLE} names a file with one token in it; 'vgpuctl token create' makes one"
