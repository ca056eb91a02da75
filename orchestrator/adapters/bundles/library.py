# SPDX-License-Identifier: Apache-2.0
"""Driver bundles of this control plane: each kept once, under its SHA-256, after digest and signature were checked."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.adapters.bundles.content import content_of
from orchestrator.adapters.bundles.openpgp import Signed, check_detached, check_inside
from orchestrator.adapters.files.copying import PrivateCopies, Refusals
from orchestrator.adapters.files.opening import Readable
from orchestrator.core.drivers.bundle import DriverBundle, NewBundle, unknown_content
from orchestrator.core.errors import Fatal, InvalidInput
from orchestrator.ports.files import TakenFile

MAX_BUNDLE_BYTES: Final = 8 * 1024**3
_AT_ONCE: Final = 2
"""Files whose headers are in memory, some tens of MiB each."""


class BundleLibrary:
    """Implements ports/files.BundleFiles below one directory."""

    def __init__(self, directory: Path, files: Readable) -> None:
        self._directory = directory
        self._files = files
        self._judging = threading.BoundedSemaphore(_AT_ONCE)
        self._copies = PrivateCopies(
            directory,
            Refusals(
                max_bytes=MAX_BUNDLE_BYTES,
                too_large=_too_large,
                digest_differs="bundle.digest_differs",
                not_stored="bundle.not_stored",
            ),
        )

    def remove(self, sha256: str) -> None:
        (self._directory / sha256).unlink(missing_ok=True)

    def checked(self, sha256: str) -> Path:
        """:raises Fatal: ``bundle.damaged``"""
        path = self._directory / sha256
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _damaged(sha256, str(error)) from error
        if digest != sha256:
            raise _damaged(sha256, f"found {digest}")
        return path

    @contextmanager
    def take(self, wanted: NewBundle, now: float) -> Iterator[TakenFile[DriverBundle]]:
        """Copy it, check digest and signature, then read what it is.

        :raises InvalidInput: ``bundle.…``
        :raises Fatal: ``bundle.not_stored``
        """
        with (
            self._opened(wanted.source) as chunks,
            self._copies.of(chunks, wanted.sha256, wanted.size_bytes) as copied,
        ):
            with self._judging:
                signed = _checked(copied.path, wanted)
                content = content_of(copied.path)
            bundle = DriverBundle(
                sha256=copied.sha256,
                content=content,
                size_bytes=copied.size,
                key_id=signed.key_id,
                comment=signed.comment,
                created_at=now,
            )
            yield TakenFile(bundle, lambda: copied.path.replace(self._directory / copied.sha256))

    @contextmanager
    def _opened(self, source: str | Iterator[bytes]) -> Iterator[Iterator[bytes]]:
        if not isinstance(source, str):
            yield source
        elif not source.startswith("/"):
            raise _refused(source, "only absolute paths are allowed")
        else:
            with self._files.open(source, _refused) as chunks:
                yield chunks


def _checked(path: Path, wanted: NewBundle) -> Signed:
    if wanted.signature is None:
        return check_inside(path, wanted.key)
    return check_detached(path, wanted.signature, wanted.key)


def _too_large() -> InvalidInput:
    return unknown_content(f"the file has more than {MAX_BUNDLE_BYTES // 1024**3}GiB")


def _damaged(sha256: str, details: str) -> Fatal:
    return Fatal(
        "bundle.damaged",
        f"driver bundle {sha256[:12]} is not what it was when it was checked",
        hint=f"'vgpuctl driver bundle remove {sha256[:12]}', then add it again; no host was touched",
        details=details,
    )


def _refused(source: str, why: str) -> InvalidInput:
    return InvalidInput(
        "bundle.source_refused",
        f"driver bundle {ascii(source)[:120]} is refused: {why}",
        hint="name a file that the server can read by its absolute path",
    )
