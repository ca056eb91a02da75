# SPDX-License-Identifier: Apache-2.0
"""Bodies about base images."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.schemas.base import AboutAnswer, Moment, Name
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.vms.image import Image, NewImage


class AddImageBody(StrictForm):
    """A file or URL to take as a base image."""

    copied_from = (NewImage,)

    model_config = ConfigDict(
        title="AddImage",
        json_schema_extra={"examples": [{"name": "debian-13", "source": "/srv/images/debian-13.qcow2"}]},
    )

    name: Name
    source: str = Field(max_length=4096)
    """Absolute path on the server's machine, or an http(s) URL."""
    sha256: str | None = Field(default=None, max_length=64)
    format: ImageFormat | None = None

    def wanted(self) -> NewImage:
        """As the service takes it."""
        return NewImage(name=self.name, source=self.source, sha256=self.sha256, format=self.format)


class UploadQuery(BaseModel):
    """What is said of a tenant's image that is sent."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(max_length=64, description="What the content hashes to")
    format: ImageFormat | None = Field(default=None, description="Left out: told by the content, as in AddImage")
    shared: bool = Field(default=False, description="Other tenants may use it too, as ``tenant/name``")


class GuestDriverBody(StrictForm):
    """Which NVIDIA driver is in an image."""

    model_config = ConfigDict(title="GuestDriver", json_schema_extra={"examples": [{"version": "580.65.06"}]})

    version: str | None = Field(max_length=40)
    """null: nobody knows, or there is none."""


class ImageAnswer(AboutAnswer):
    """A registered base image."""

    copied_from = (Image,)

    name: str
    """What it is called."""
    tenant: str | None
    """Whose it is; null: the site's, which every tenant uses."""
    shared: bool
    """Other tenants may use it, as ``tenant/name``."""
    sha256: str
    format: ImageFormat
    size_bytes: int
    virtual_size_bytes: int
    created_at: Moment
    guest_driver: str | None

    @classmethod
    def of(cls, image: Image) -> ImageAnswer:
        return cls.copied_about(image, image.about, name=image.short, shared=image.shared or image.tenant is None)
