# SPDX-License-Identifier: Apache-2.0
"""Base images."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from sqlalchemy import bindparam, delete, insert, select, update

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.names import near
from orchestrator.core.tenancy.quota import image_amounts
from orchestrator.core.vms.image import Image
from orchestrator.store.events import Events
from orchestrator.store.rows import about_of, about_values
from orchestrator.store.statements import AnyRow, Precompiled, Statements
from orchestrator.store.tables import images, observations
from orchestrator.store.usage import TenantUsage

_IMAGE: Final = Precompiled(select(images).where(images.c.name == bindparam("its_name")))


class Images:
    """Base images that VMs are made from."""

    def __init__(self, connection: Statements, tenants: TenantUsage, events: Events) -> None:
        self._db = connection
        self._tenants = tenants
        self._events = events

    def add(self, image: Image) -> None:
        """:raises Conflict: ``image.exists``"""
        if self._db.execute(select(images.c.name).where(images.c.name == image.name)).one_or_none() is not None:
            raise Conflict(
                "image.exists",
                f"there is already an image {image.name} with other content",
                hint=f"choose another name, or remove that one first: 'vgpuctl image remove {image.name}'",
            )
        self._db.execute(insert(images).values(_image_values(image)))
        self._note(image, "created")
        if image.tenant is not None:
            self._tenants.change(image.tenant, {}, image_amounts(image))

    def get(self, name: str) -> Image:
        """:raises NotFound: ``image.unknown``"""
        row = self._db.execute(_IMAGE, {"its_name": name}).one_or_none()
        if row is None:
            raise NotFound(
                "image.unknown",
                f"no image is called {name[:63]!a}",
                hint=near(name, [image.name for image in self.list()], "vgpuctl image list"),
            )
        return _image_of(row)

    def update(self, image: Image) -> None:
        self._db.execute(update(images).where(images.c.name == image.name).values(_image_values(image)))
        self._note(image, "changed")

    def list(self) -> tuple[Image, ...]:
        return tuple(_image_of(row) for row in self._db.execute(select(images).order_by(images.c.name)))

    def remove(self, name: str) -> None:
        """All hosts are compared anew with what is wanted: they may have copies."""
        gone = self._db.execute(_IMAGE, {"its_name": name}).one_or_none()
        image = None if gone is None else _image_of(gone)
        if image is not None and image.tenant is not None:
            self._tenants.change(image.tenant, image_amounts(image), {})
        self._db.execute(update(observations).values(judged=None))
        self._db.execute(delete(images).where(images.c.name == name))
        if image is not None:
            self._note(image, "removed")

    def _note(self, image: Image, change: str) -> None:
        self._events.note("image", image.name.rpartition("/")[2], change, tenant=image.tenant)


def _image_of(row: AnyRow) -> Image:
    return Image(**(row._asdict() | {"about": about_of(row.about)}))


def _image_values(image: Image) -> dict[str, object]:
    """The row of :func:`_image_of`."""
    return {**asdict(image), "about": about_values(image.about)}
