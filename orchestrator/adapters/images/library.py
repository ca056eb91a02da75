# SPDX-License-Identifier: Apache-2.0
"""Base images of this control plane: each stored once, under its SHA-256, after it was checked.

What is checked is our own private copy: nobody can exchange it between check and use.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oslo_utils.imageutils import format_inspector

from orchestrator.adapters.images.sources import open_source
from orchestrator.core.errors import Fatal, InvalidInput
from orchestrator.core.host_actions import ImageFormat
from orchestrator.core.image import Image

MAX_IMAGE_BYTES = 64 * 1024**3
MAX_VIRTUAL_BYTES = 2 * 1024**4
_SECTOR = 512
_VMDK_TEXT = b"# Disk DescriptorFile"
_SMALLER = "make the image smaller; VMs' disks are larger than their image"
_COMPLETE = "give a complete image of its own, for example qcow2 or raw"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_FORMATS: dict[str, ImageFormat] = {"qcow2": "qcow2", "raw": "raw", "gpt": "raw"}
"""The inspector calls a raw disk with a partition table ``gpt``."""


class ImageLibrary:
    """Implements ports/files.ImageFiles below one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        for leftover in directory.glob("*.part"):
            leftover.unlink()

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        return self._directory / f"{sha256}.{image_format}"

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        self.path(sha256, image_format).unlink(missing_ok=True)

    def take(self, name: str, source: str, sha256: str | None, now: float) -> Image:
        """Copy or download ``source``, check it, keep it.

        :raises InvalidInput: ``image.source_refused``, ``image.unsafe``, ``image.too_large``, ``image.digest_differs``
        :raises Fatal: ``image.not_stored``
        """
        with self._private_copy() as part, open_source(source) as chunks:
            digest, size = _copy(chunks, part)
            if sha256 is not None and digest != sha256.lower():
                raise InvalidInput(
                    "image.digest_differs",
                    "the image does not have the given SHA-256",
                    hint="the download is damaged, or the digest belongs to another file",
                    details=f"found {digest}",
                )
            image_format, virtual_size = _inspect(part)
            part.replace(self.path(digest, image_format))
        return Image(
            name=name,
            sha256=digest,
            format=image_format,
            size_bytes=size,
            virtual_size_bytes=virtual_size,
            created_at=now,
        )

    @contextmanager
    def _private_copy(self) -> Iterator[Path]:
        part = self._directory / f"{uuid.uuid4().hex}.part"
        try:
            yield part
        except OSError as error:
            raise Fatal(
                "image.not_stored", "the image could not be stored", details=str(error), hint="is the disk full?"
            ) from error
        finally:
            part.unlink(missing_ok=True)


def _copy(chunks: Iterator[bytes], target: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in chunks:
            size += len(chunk)
            if size > MAX_IMAGE_BYTES:
                raise InvalidInput(
                    "image.too_large",
                    f"the image has more than {MAX_IMAGE_BYTES // 1024**3}GiB",
                    hint=_SMALLER,
                )
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if size == 0:
        raise InvalidInput("image.unsafe", "the image is empty", hint=_COMPLETE)
    return digest.hexdigest(), size


def _refuse_by_first_bytes(path: Path) -> None:
    """What the inspector would take for a raw disk."""
    with path.open("rb") as file:
        first = file.read(len(_VMDK_TEXT))
    if first == _VMDK_TEXT:
        raise InvalidInput(
            "image.unsafe",
            "the image is a VMDK descriptor, which refers to other files",
            hint=_COMPLETE,
        )
    compressed = next((name for magic, name in _COMPRESSED.items() if first.startswith(magic)), None)
    if compressed is not None:
        raise InvalidInput("image.unsafe", f"the image is compressed with {compressed}", hint="unpack it first")


def _inspect(path: Path) -> tuple[ImageFormat, int]:
    """Format and virtual size of what certainly refers to no other file."""
    _refuse_by_first_bytes(path)
    try:
        inspector = format_inspector.detect_file_format(str(path))
        found = None if inspector is None else _FORMATS.get(str(inspector))
        if inspector is None or found is None:
            raise InvalidInput(
                "image.unsafe",
                f"the image is {inspector or 'of no known format'}, not qcow2 or raw",
                hint="convert it with qemu-img convert -O qcow2",
            )
        inspector.safety_check()
        virtual_size = int(inspector.virtual_size)
    except (format_inspector.SafetyCheckFailed, format_inspector.ImageFormatError) as error:
        raise InvalidInput(
            "image.unsafe",
            "the image is damaged or refers to other files",
            details=str(error),
            hint="a base image must stand alone: qemu-img convert -O qcow2 writes such a copy",
        ) from error
    if found == "raw":
        virtual_size = path.stat().st_size
        if virtual_size % _SECTOR:
            raise InvalidInput(
                "image.unsafe",
                "the image is no disk: its size is not a multiple of 512 bytes",
                hint="is it complete, and an image at all?",
            )
    if not 0 < virtual_size <= MAX_VIRTUAL_BYTES:
        raise InvalidInput(
            "image.too_large",
            f"the image's disk has {virtual_size} bytes; at most {MAX_VIRTUAL_BYTES} are allowed",
            hint=_SMALLER,
        )
    return found, virtual_size
