# SPDX-License-Identifier: Apache-2.0
"""A file on its way to the server: opened and read by who sends it, so that the server needs no right to it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from orchestrator.core.errors import InvalidInput, why_unreadable
from orchestrator.core.names import check_sha256
from orchestrator.regular_file import open_regular

PART_BYTES: Final = 256 * 1024

Progress = Callable[[Literal["read", "sent"], int], object]
"""Is told how many bytes were read for the digest, then how many were sent."""


@dataclass
class Content:
    """What :func:`open_content` gives. ``size`` in bytes; ``expected``: what it has to hash to, None: anything."""

    file: BinaryIO
    size: int
    expected: str | None
    progress: Progress

    def digest(self) -> str:
        """Its SHA-256.

        :raises InvalidInput: ``file.digest_differs``, ``file.unreadable``, ``file.changed``
        """
        digest = hashlib.sha256()
        for part in self.parts("read"):
            digest.update(part)
        if self.expected is not None and self.expected.lower() != digest.hexdigest():
            raise InvalidInput(
                "file.digest_differs",
                "the file does not have the given SHA-256",
                hint="it is damaged, or the digest belongs to another file",
            )
        return digest.hexdigest()

    def parts(self, way: Literal["read", "sent"] = "sent") -> Iterator[bytes]:
        """All of it, from its beginning.

        :raises InvalidInput: ``file.unreadable``, ``file.changed``
        """
        done = 0
        try:
            self.file.seek(0)
            while done < self.size:
                part = self.file.read(min(PART_BYTES, self.size - done))
                if not part:
                    raise InvalidInput(
                        "file.changed", "the file was made shorter while it was read", hint="leave it alone, then again"
                    )
                yield part
                done += len(part)
                self.progress(way, done)
        except OSError as error:
            raise _unreadable(error) from error


def _nobody(_way: str, _done: int) -> None:
    """Nobody wants to know."""


@contextmanager
def open_content(path: Path | str, *, sha256: str | None = None, progress: Progress = _nobody) -> Iterator[Content]:
    """A regular file. ``sha256``: what it has to hash to.

    :raises InvalidInput: ``file.unreadable``, ``file.digest_invalid``
    """
    check_sha256(sha256, "file.digest_invalid")
    try:
        file = open_regular(Path(path))
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    with file:
        yield Content(file, os.fstat(file.fileno()).st_size, sha256, progress)


def _unreadable(error: OSError | ValueError) -> InvalidInput:
    return InvalidInput(
        "file.unreadable",
        f"the file cannot be read: {why_unreadable(error)}",
        hint="it is read here, by you; a file of the server's machine is named with --server-path",
    )
