# SPDX-License-Identifier: Apache-2.0
"""A base image: a disk that VMs' overlays are made on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.host_actions import ImageFormat

_OTHERS = re.compile(r"(?<![a-z0-9])(arm64|aarch64|armhf|ppc64le|ppc64el|riscv64|s390x)(?![a-z0-9])")
_OURS = re.compile(r"(?<![a-z0-9])(x86[_-]64|amd64)(?![a-z0-9])")


def for_other_hosts(architecture: str) -> InvalidInput:
    return InvalidInput(
        "image.architecture",
        f"the image is for {architecture}, and hosts run VMs of x86_64",
        hint="take the distribution's image for amd64 (x86_64); is it one, give the file another name",
    )


def check_file_name(source: str) -> None:
    """A distribution's image has the architecture in its file's name. ``source``: a path or URL.

    :raises InvalidInput: ``image.architecture``"""
    name = source.rpartition("/")[2].lower()
    other = _OTHERS.search(name)
    if other is not None and not _OURS.search(name):
        raise for_other_hosts(other[1])


@dataclass(frozen=True, kw_only=True)
class Image:
    """A registered image. Its content is known by hash; the name is only for people."""

    name: str
    sha256: str
    format: ImageFormat
    """Found by inspection when it was added; nobody ever guesses again."""
    size_bytes: int
    virtual_size_bytes: int
    created_at: float
    """Seconds since the epoch, UTC."""
    guest_driver: str | None = None
    """The NVIDIA driver that is in it, as an operator said; None: nobody said, or there is none."""

    @property
    def file(self) -> str:
        """Name of its copy on hosts."""
        return f"{self.sha256}.{self.format}"


@dataclass(frozen=True, kw_only=True)
class NewImage:
    """An image that is to be registered."""

    name: str
    source: str | Iterator[bytes]
    """An absolute path on the server's machine, an http(s) URL, or the content itself in chunks."""
    size_bytes: int | None = None
    """Of the content, where it is known before."""
    sha256: str | None = None
    """64 hexadecimal digits: what the content must hash to."""
    format: ImageFormat | None = None
    """None: told by the content, which for a raw disk takes a partition table or a file system that is known."""
