# SPDX-License-Identifier: Apache-2.0
"""/v1/images"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.images import AddImageBody, GuestDriverBody, ImageAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/images", tags=["images"])


@router.post("", status_code=201)
def add(body: AddImageBody, services: ServicesOf) -> ImageAnswer:
    """Take a file or URL as a base image; answers when it is stored and checked."""
    return ImageAnswer.of(services.images.add(body.wanted()))


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
