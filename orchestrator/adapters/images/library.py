# SPDX-License-Identifier: Apache-2.0
"""Base images of this control plane: each stored once, under its SHA-256, after it was checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.adapters.files.copying import Copied, PrivateCopies, Refusals
from orchestrator.adapters.images import vmdk
from orchestrator.adapters.images.inspecting import inspect
from orchestrator.adapters.images.refused import MAX_IMAGE_BYTES, too_large
from orchestrator.adapters.images.sources import Sources
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.vms.image import Image, NewImage
from orchestrator.ports.files import TakenFile


class ImageLibrary:
    """Implements ports/files.ImageFiles below one directory."""

    def __init__(self, directory: Path, sources: Sources, owner: str = "") -> None:
        """``owner``: of several controllers that share the directory, this one."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._sources = sources
        self._copies = PrivateCopies(
            directory,
            Refusals(
                max_bytes=MAX_IMAGE_BYTES,
                too_large=too_large,
                digest_differs="image.digest_differs",
                not_stored="image.not_stored",
            ),
            owner,
        )

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        return self._directory / f"{sha256}.{image_format}"

    def local(self, sha256: str, image_format: ImageFormat) -> Path | None:
        path = self.path(sha256, image_format)
        return path if path.is_file() else None

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        self.path(sha256, image_format).unlink(missing_ok=True)

    @contextmanager
    def take(self, wanted: NewImage, now: float) -> Iterator[TakenFile[Image]]:
        """Copy or download it, check it, and keep it as qcow2 when it is a VMDK.

        :raises InvalidInput: ``image.source_refused``, ``image.unsafe``, ``image.too_large``, ``image.digest_differs``
        :raises Fatal: ``image.not_stored``, ``image.checker_missing``
        """
        with (
            self._sources.open(wanted.source) as chunks,
            self._copies.of(chunks, wanted.sha256, wanted.size_bytes) as copied,
            self._qcow2_of(copied) as kept,
        ):
            inspected = inspect(kept.path, wanted.format)
            image = Image(
                name=wanted.name,
                sha256=kept.sha256,
                format=inspected.format,
                size_bytes=kept.size,
                virtual_size_bytes=inspected.virtual_bytes,
                created_at=now,
            )
            yield TakenFile(image, lambda: kept.path.replace(self.path(image.sha256, image.format)))

    @contextmanager
    def _qcow2_of(self, copied: Copied) -> Iterator[Copied]:
        """Out of a VMDK; itself where it is none."""
        with copied.path.open("rb") as file:
            is_vmdk = file.read(len(vmdk.MAGIC)) == vmdk.MAGIC
        if not is_vmdk:
            yield copied
            return
        with self._copies.of(iter(()), None) as made:
            vmdk.convert(copied.path, made.path)
            yield made.as_it_is()

    def keep(self, chunks: Iterator[bytes], sha256: str, image_format: ImageFormat) -> None:
        """What another controller has taken and checked.

        :raises InvalidInput: ``image.digest_differs``; :raises Fatal: ``image.not_stored``
        """
        with self._copies.of(chunks, sha256) as copied:
            copied.path.replace(self.path(sha256, image_format))
