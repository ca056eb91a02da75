# SPDX-License-Identifier: Apache-2.0
"""/v1/profiles"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.profiles import ProfileAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.services.messages import ProfileInfo

router = APIRouter(prefix="/profiles", tags=["profiles"])


@router.get("")
def list_all(services: ServicesOf, paging: PagingOf) -> list[ProfileAnswer]:
    """Offerings and vGPU types that some host offers now, with how many more fit."""
    return [ProfileAnswer.of(info) for info in paging.cut(services.profiles.list(), _place)]


def _place(info: ProfileInfo) -> tuple[str, str]:
    """Ours first."""
    return "0" if info.offering.origin == "catalogue" else "1", info.offering.name


@router.get("/{name:path}")
def get(name: str, services: ServicesOf) -> ProfileAnswer:
    """One profile by any name that create takes."""
    return ProfileAnswer.of(services.profiles.get(name))
