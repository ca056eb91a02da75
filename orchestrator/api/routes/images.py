# SPDX-License-Identifier: Apache-2.0
"""/v1/images"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from orchestrator.api.file_bodies import OCTETS, take_file, with_files
from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.images import AddImageBody, GuestDriverBody, ImageAnswer
from orchestrator.api.services import ProcessOf, ServicesOf
from orchestrator.core.host_actions import ImageFormat
from orchestrator.core.image import NewImage

router = APIRouter(prefix="/images", tags=["images"])


@router.post("", status_code=201)
async def add(body: AddImageBody, services: ServicesOf) -> ImageAnswer:
    """Take a file of the server's machine or a URL as a base image; answers when it is stored and checked."""
    return ImageAnswer.of(await with_files(lambda: services.images.add(body.wanted())))


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
    """Send a base image; answers when it is stored and checked."""
    image = await take_file(
        request,
        process,
        lambda parts, size: services.images.add(
            NewImage(name=name, source=parts, size_bytes=size, sha256=sha256, format=image_format)
        ),
    )
    return ImageAnswer.of(image)


@router.get("")
def list_all(services: ServicesOf, paging: PagingOf) -> list[ImageAnswer]:
    """Base images by name."""
    return [ImageAnswer.of(image) for image in paging.cut(services.images.list(), lambda image: (image.name,))]


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf) -> ImageAnswer:
    """One base image."""
    return ImageAnswer.of(services.images.get(name))


@router.put("/{name}/guest-driver")
def set_guest_driver(name: NameInPath, body: GuestDriverBody, services: ServicesOf) -> ImageAnswer:
    """Say which NVIDIA driver is in the image: its VMs start only where the host's driver takes it."""
    return ImageAnswer.of(services.images.set_guest_driver(name, body.version))


@router.delete("/{name}", status_code=204)
def remove(name: NameInPath, services: ServicesOf) -> None:
    """Forget a base image that no VM uses."""
    services.images.remove(name)
