# SPDX-License-Identifier: Apache-2.0
"""Opens files that people name: regular ones alone, for what is read from a device or pipe may never begin or end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

MAX_CERTIFICATES_BYTES: Final = 4 * 1024 * 1024


def open_regular(path: Path) -> BinaryIO:
    """For reading.

    :raises OSError: it cannot be read, or is no regular file
    :raises ValueError: the name is none that a file can have
    """
    # O_NONBLOCK: opening a FIFO must not wait for somebody to write into it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file")


def read_at_most(path: Path, max_bytes: int) -> bytes | None:
    """The whole content; None: it has more than ``max_bytes``. Raises as :func:`open_regular` does."""
    with open_regular(path) as stream:
        content = stream.read(max_bytes + 1)
    return content if len(content) <= max_bytes else None


def read_certificates(path: Path) -> str:
    """The text of a PEM file, for ``cadata`` of ssl; never empty, which would stand for whom this machine trusts.

    :raises OSError: it cannot be read, or is no regular file
    :raises ValueError: the name is none that a file can have, or it is too long
    """
    content = read_at_most(path, MAX_CERTIFICATES_BYTES)
    if content is None:
        raise ValueError(f"it has more than {MAX_CERTIFICATES_BYTES} bytes")
    # Bundles have comments in any letters; what counts is ASCII.
    return content.decode("ascii", errors="ignore") + "\n"
