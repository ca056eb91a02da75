# SPDX-License-Identifier: Apache-2.0
"""/v1/images of the site, /v1/tenants/{tenant}/images of a tenant"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.file_bodies import OCTETS, take_file, with_files
from orchestrator.api.http_answers import located
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import AboutAnswer, DescribeBody, Moment, Name, NameInPath, TenantInPath
from orchestrator.api.services import ProcessOf, SelectorOf, ServicesOf, TenantFilter
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.labels import selects
from orchestrator.core.vms.image import Image, NewImage


class AddImageBody(StrictForm, example={"name": "debian-13", "source": "/srv/images/debian-13.qcow2"}):
    """A file or URL to take as a base image."""

    copied_from = (NewImage,)

    name: Name
    source: str = Field(max_length=4096)
    """Absolute path on the server's machine, or an http(s) URL."""
    sha256: str | None = Field(default=None, max_length=64)
    format: ImageFormat | None = None

    def wanted(self) -> NewImage:
        return NewImage(name=self.name, source=self.source, sha256=self.sha256, format=self.format)


class UploadQuery(BaseModel):
    """What is said of a tenant's image that is sent."""

    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(max_length=64, description="What the content hashes to")
    format: ImageFormat | None = Field(default=None, description="Left out: told by the content, as in AddImage")
    shared: bool = Field(default=False, description="Other tenants may use it too, as ``tenant/name``")


class GuestDriverBody(StrictForm, example={"version": "580.65.06"}):
    """Which NVIDIA driver is in an image."""

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


router = APIRouter(prefix="/images", tags=["images"])
of_tenant = APIRouter(prefix="/tenants/{tenant}/images", tags=["images"])


@router.post("", status_code=201)
async def add(response: Response, body: AddImageBody, services: ServicesOf) -> ImageAnswer:
    """Add an image. Take a file of the server's machine or a URL as a base image; answers when it is stored and
    checked."""
    added = ImageAnswer.of(await with_files(lambda: services.images.add(body.wanted())))
    located(response, "images", added.name)
    return added


@router.put("/{name}/content", openapi_extra=OCTETS)
async def upload(
    name: NameInPath,
    sha256: Annotated[str, Query(max_length=64, description="What the content hashes to")],
    request: Request,
    services: ServicesOf,
    process: ProcessOf,
    image_format: Annotated[
        ImageFormat | None, Query(alias="format", description="Left out: told by the content, as in AddImage")
    ] = None,
) -> ImageAnswer:
    """Upload an image's content. Send a base image; answers when it is stored and checked."""
    image = await take_file(
        request,
        process,
        lambda parts, size: services.images.add(
            NewImage(name=name, source=parts, size_bytes=size, sha256=sha256, format=image_format)
        ),
    )
    return ImageAnswer.of(image)


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, selector: SelectorOf, tenant: TenantFilter = None
) -> list[ImageAnswer]:
    """List images. Those that the caller may make VMs of: the site's by name, then by tenant."""
    usable = services.images.list(caller.visible(tenant))
    selected = (image for image in usable if selects(selector, image.about.labels))
    return paging.answers(ImageAnswer, selected, lambda image: (image.tenant or "", image.short), ImageAnswer.of)


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf) -> ImageAnswer:
    """Get an image."""
    return ImageAnswer.of(services.images.get(name))


@router.patch("/{name}")
def describe(name: NameInPath, body: DescribeBody, services: ServicesOf) -> ImageAnswer:
    """Describe an image. Set description and labels of a base image of the site; those not named stay."""
    return ImageAnswer.of(services.images.describe(name, None, body.description, body.labels))


@router.put("/{name}/guest-driver")
def set_guest_driver(name: NameInPath, body: GuestDriverBody, services: ServicesOf) -> ImageAnswer:
    """Set an image's guest driver. Say which NVIDIA driver is in the image: its VMs start only where the host's
    driver takes it."""
    return ImageAnswer.of(services.images.set_guest_driver(name, body.version))


@router.delete("/{name}", status_code=204)
def remove(name: NameInPath, services: ServicesOf) -> None:
    """Remove an image that no VM uses."""
    services.images.remove(name)


@of_tenant.put("/{name}/content", openapi_extra=OCTETS)
async def upload_of_tenant(
    tenant: TenantInPath,
    name: NameInPath,
    query: Annotated[UploadQuery, Query()],
    request: Request,
    services: ServicesOf,
    process: ProcessOf,
) -> ImageAnswer:
    """Upload the content of a tenant's image. Send a tenant's base image; answers when it is stored and checked.
    Sent again, it is shared as is said then."""
    image = await take_file(
        request,
        process,
        lambda parts, size: services.images.add(
            NewImage(name=name, source=parts, size_bytes=size, sha256=query.sha256, format=query.format),
            tenant,
            shared=query.shared,
        ),
        tenant=tenant,
    )
    return ImageAnswer.of(image)


@of_tenant.get("/{name}")
def get_of_tenant(tenant: TenantInPath, name: NameInPath, services: ServicesOf) -> ImageAnswer:
    """Get an image that a tenant may use. The base image that a VM of the tenant gets by that name: its own, else
    the site's."""
    return ImageAnswer.of(services.images.get(name, tenant))


@of_tenant.patch("/{name}")
def describe_of_tenant(tenant: TenantInPath, name: NameInPath, body: DescribeBody, services: ServicesOf) -> ImageAnswer:
    """Describe a tenant's image. Set description and labels of a tenant's own base image; those not named stay."""
    return ImageAnswer.of(services.images.describe(name, tenant, body.description, body.labels))


@of_tenant.put("/{name}/guest-driver")
def set_guest_driver_of_tenant(
    tenant: TenantInPath, name: NameInPath, body: GuestDriverBody, services: ServicesOf
) -> ImageAnswer:
    """Set the guest driver of a tenant's image. Say which NVIDIA driver is in a tenant's own image: its VMs start
    only where the host's driver takes it."""
    return ImageAnswer.of(services.images.set_guest_driver(name, body.version, tenant))


@of_tenant.delete("/{name}", status_code=204)
def remove_of_tenant(tenant: TenantInPath, name: NameInPath, services: ServicesOf) -> None:
    """Remove a tenant's own image that no VM uses."""
    services.images.remove(name, tenant)
