# SPDX-License-Identifier: Apache-2.0
"""Bodies about base images."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody, moment
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.vms.image import Image, NewImage


class AddImageBody(RequestBody):
    """A file or URL to take as a base image."""

    model_config = ConfigDict(
        title="AddImage",
        json_schema_extra={"examples": [{"name": "debian-13", "source": "/srv/images/debian-13.qcow2"}]},
    )

    name: Name
    source: str = Field(max_length=4096, description="Absolute path on the server's machine, or an http(s) URL")
    sha256: str | None = Field(default=None, max_length=64, description="What the content must hash to")
    format: ImageFormat | None = Field(
        default=None,
        description="null: told by the content; a raw disk then needs a partition table or file system that is known",
    )

    def wanted(self) -> NewImage:
        """As the service takes it."""
        return NewImage(name=self.name, source=self.source, sha256=self.sha256, format=self.format)


class UploadQuery(BaseModel):
    """What is said of a tenant's image that is sent."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(max_length=64, description="What the content hashes to")
    format: ImageFormat | None = Field(default=None, description="Left out: told by the content, as in AddImage")
    shared: bool = Field(default=False, description="Other tenants may use it too, as ``tenant/name``")


class GuestDriverBody(RequestBody):
    """Which NVIDIA driver is in an image."""

    model_config = ConfigDict(title="GuestDriver", json_schema_extra={"examples": [{"version": "580.65.06"}]})

    version: str | None = Field(max_length=40, description="null: nobody knows, or there is none")


class ImageAnswer(AnswerBody):
    """A registered base image."""

    name: str
    tenant: str | None = Field(description="Whose it is; null: the site's, which every tenant uses")
    shared: bool = Field(description="Other tenants may use it, as ``tenant/name``")
    sha256: str
    format: ImageFormat
    size_bytes: int
    virtual_size_bytes: int
    created_at: datetime
    guest_driver: str | None = Field(description="The NVIDIA driver in it; null: nobody said")
    description: str = Field(description="What people say of it")
    labels: dict[str, str]

    @classmethod
    def of(cls, image: Image) -> ImageAnswer:
        return cls(
            name=image.short,
            tenant=image.tenant,
            shared=image.shared or image.tenant is None,
            sha256=image.sha256,
            format=image.format,
            size_bytes=image.size_bytes,
            virtual_size_bytes=image.virtual_size_bytes,
            created_at=moment(image.created_at),
            guest_driver=image.guest_driver,
            description=image.about.description,
            labels=dict(image.about.labels),
        )
