# SPDX-License-Identifier: Apache-2.0
"""Driver bundles of this control plane: each kept once, under its SHA-256, after digest and signature were checked.

What is checked is our own private copy: nobody can exchange it between check and use.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.adapters.bundles.content import content_of
from orchestrator.adapters.bundles.minisign import check_signature
from orchestrator.adapters.images.sources import open_file
from orchestrator.core.driver_bundle import DriverBundle, unknown_content
from orchestrator.core.errors import Fatal, InvalidInput

MAX_BUNDLE_BYTES: Final = 8 * 1024**3


@dataclass(frozen=True)
class _Copied:
    sha256: str
    blake2b: bytes
    size: int


class BundleLibrary:
    """Implements ports/files.BundleFiles below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for leftover in directory.glob("*.part"):
            leftover.unlink()

    def remove(self, sha256: str) -> None:
        (self._directory / sha256).unlink(missing_ok=True)

    def take(self, source: str, signature: str, key: str, sha256: str | None, now: float) -> DriverBundle:
        """Copy ``source``, check digest and signature, then read what it is, and keep it.

        :raises InvalidInput: ``bundle.…``
        :raises Fatal: ``bundle.not_stored``
        """
        if not source.startswith("/"):
            raise _refused(source, "only absolute paths are allowed")
        with self._private_copy() as part, open_file(source, _refused) as chunks:
            copied = _copy(chunks, part)
            if sha256 is not None and copied.sha256 != sha256.lower():
                raise InvalidInput(
                    "bundle.digest_differs",
                    "the file does not have the given SHA-256",
                    hint="the download is damaged, or the digest belongs to another file",
                    details=f"found {copied.sha256}",
                )
            signed = check_signature(copied.blake2b, signature, key)
            content = content_of(part)
            part.replace(self._directory / copied.sha256)
        return DriverBundle(
            sha256=copied.sha256,
            content=content,
            size_bytes=copied.size,
            key_id=signed.key_id,
            comment=signed.comment,
            created_at=now,
        )

    @contextmanager
    def _private_copy(self) -> Iterator[Path]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._directory / f"{uuid.uuid4().hex}.part"
        try:
            yield part
        except OSError as error:
            raise Fatal(
                "bundle.not_stored", "the file could not be stored", details=str(error), hint="is the disk full?"
            ) from error
        finally:
            part.unlink(missing_ok=True)


def _copy(chunks: Iterator[bytes], target: Path) -> _Copied:
    sha256, blake2b, size = hashlib.sha256(), hashlib.blake2b(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > MAX_BUNDLE_BYTES:
                raise unknown_content(f"the file has more than {MAX_BUNDLE_BYTES // 1024**3}GiB")
            sha256.update(chunk)
            blake2b.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return _Copied(sha256=sha256.hexdigest(), blake2b=blake2b.digest(), size=size)


def _refused(source: str, why: str) -> InvalidInput:
    return InvalidInput(
        "bundle.source_refused",
        f"driver bundle {ascii(source)[:120]} is refused: {why}",
        hint="name a file that the server can read by its absolute path",
    )
