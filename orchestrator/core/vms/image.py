# SPDX-License-Identifier: Apache-2.0
"""A base image: a disk that VMs' overlays are made on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.labels import NOTHING_SAID, About
from orchestrator.core.names import check_name, is_name

MAX_OF_TENANT: Final = 32
"""Images of one tenant: the server keeps the files of all."""
MAX_STORED: Final = 63
"""Characters of a tenant's name, a ``/`` and its image's."""

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


def stored_name(tenant: str | None, name: str) -> str:
    """``tenant/name`` of a tenant's, ``name`` of the site's (None).

    :raises InvalidInput: ``image.name_invalid``"""
    check_name(name, what="image")
    stored = name if tenant is None else f"{check_name(tenant, what='tenant')}/{name}"
    if len(stored) > MAX_STORED:
        raise InvalidInput(
            "image.name_invalid",
            f"image name {stored[:MAX_STORED]!a} is too long",
            hint=f"{MAX_STORED} characters at most, the tenant's name and a '/' among them",
        )
    return stored


def check_image_name(text: str) -> str:
    """As a VM names its image: ``name``, or ``tenant/name``. :raises InvalidInput: ``image.name_invalid``"""
    tenant, slash, name = text.rpartition("/")
    if slash and not is_name(tenant):
        check_name(text, what="image")
    return stored_name(tenant if slash else None, name)


def short_of(stored: str, tenant: str) -> str:
    """What that tenant calls it."""
    return stored.removeprefix(f"{tenant}/")


@dataclass(frozen=True, kw_only=True)
class Image:
    """A registered image. Its content is known by hash; the name is only for people."""

    name: str
    """As it is stored (:func:`stored_name`)."""
    sha256: str
    """Of the file, 64 hexadecimal digits."""
    format: ImageFormat
    """Found by inspection when it was added; nobody ever guesses again."""
    size_bytes: int
    """Of the file."""
    virtual_size_bytes: int
    """Of the disk in it."""
    created_at: float
    """When it was made, in seconds since the epoch, UTC."""
    guest_driver: str | None = None
    """The NVIDIA driver that is in it, as an operator said; None: nobody said, or there is none."""
    shared: bool = False
    """Of a tenant's: whether other tenants may make VMs of it. The site's are everybody's."""
    about: About = field(default=NOTHING_SAID, compare=False)

    @property
    def tenant(self) -> str | None:
        """Whose it is; None: the site's."""
        return self.name.rpartition("/")[0] or None

    @property
    def short(self) -> str:
        """Without its tenant."""
        return self.name.rpartition("/")[2]

    def is_for(self, tenant: str) -> bool:
        """Whether that tenant may know of it and use it."""
        return self.shared or self.tenant in {None, tenant}

    @property
    def file(self) -> str:
        """Name of its copy on hosts."""
        return f"{self.sha256}.{self.format}"


def exists(name: str) -> Conflict:
    return Conflict(
        "image.exists",
        f"there is already an image {name} with other content",
        hint="choose another name, or remove that one",
    )


def check_one_more(stored: str, images: Collection[Image]) -> None:
    """Whether a tenant that has none of that name may have one more, beside all that there are.

    :raises Conflict: ``image.too_many``, ``image.exists``: it or the site has one of that name"""
    tenant, _, name = stored.rpartition("/")
    own = [image for image in images if image.tenant == tenant]
    taken = next((image.name for image in images if image.name in {stored, name}), None)
    if taken is not None:
        raise exists(taken)
    if len(own) >= MAX_OF_TENANT:
        raise Conflict(
            "image.too_many",
            f"tenant {tenant} has {MAX_OF_TENANT} images, and no tenant has more",
            hint=f"'vgpuctl image remove {own[0].short} --tenant {tenant}' makes room",
        )


@dataclass(frozen=True, kw_only=True)
class NewImage:
    """An image that is to be registered."""

    name: str
    """What it is called."""
    source: str | Iterator[bytes]
    """An absolute path on the server's machine, an http(s) URL, or the content itself in chunks."""
    size_bytes: int | None = None
    """Of the content, where it is known before."""
    sha256: str | None = None
    """64 hexadecimal digits: what the content must hash to."""
    format: ImageFormat | None = None
    """None: told by the content, which for a raw disk takes a partition table or a file system that is known."""
