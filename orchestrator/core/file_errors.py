# SPDX-License-Identifier: Apache-2.0
"""Why a file that somebody named cannot be read or written, in words."""

from __future__ import annotations

from collections.abc import Mapping

_WORDS: Mapping[type[Exception], str] = {
    FileNotFoundError: "there is no such file",
    NotADirectoryError: "a part of its path is no directory",
    IsADirectoryError: "it is a directory",
    PermissionError: "its permissions do not allow it",
    UnicodeDecodeError: "it is not UTF-8 text",
}


def why_unwritable(error: OSError | ValueError) -> str:
    """What making a file was answered with."""
    if isinstance(error, FileNotFoundError):
        return "there is no such directory"
    return "it exists already" if isinstance(error, FileExistsError) else why_unreadable(error)


def why_unreadable(error: OSError | ValueError) -> str:
    """What opening or decoding a file was answered with. A ``ValueError`` is what the path itself is refused with."""
    known = next((words for kind, words in _WORDS.items() if isinstance(error, kind)), None)
    if known is not None:
        return known
    if isinstance(error, OSError):
        return (error.strerror or "it cannot be opened").lower()
    return "its name is none that a file can have"
