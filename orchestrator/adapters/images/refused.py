# SPDX-License-Identifier: Apache-2.0
"""The refusal of an image's content."""

from __future__ import annotations

from typing import Final

from orchestrator.core.errors import Fatal, InvalidInput

MAX_IMAGE_BYTES: Final = 64 * 1024**3
MAX_VIRTUAL_BYTES: Final = 2 * 1024**4
_COMPLETE: Final = "give a complete image of its own, for example qcow2 or raw"
_SMALLER: Final = "make the image smaller; VMs' disks are larger than their image"


def unsafe(why: str, hint: str = _COMPLETE) -> InvalidInput:
    """``why`` goes on after "the image"."""
    return InvalidInput("image.unsafe", f"the image {why}", hint=hint)


def checker_missing(why: str) -> Fatal:
    """``why`` goes on after "qemu-img, and"."""
    return Fatal(
        "image.checker_missing",
        f"qcow2 images are checked with qemu-img, and {why}",
        hint="install qemu-utils (qemu-img) on the server's machine",
    )


def too_large() -> InvalidInput:
    return InvalidInput("image.too_large", f"the image has more than {MAX_IMAGE_BYTES // 1024**3}GiB", hint=_SMALLER)


def check_disk_size(virtual_bytes: int) -> None:
    """:raises InvalidInput: ``image.too_large``"""
    if not 0 < virtual_bytes <= MAX_VIRTUAL_BYTES:
        raise InvalidInput(
            "image.too_large",
            f"the image's disk has {virtual_bytes} bytes; at most {MAX_VIRTUAL_BYTES} are allowed",
            hint=_SMALLER,
        )
