# SPDX-License-Identifier: Apache-2.0
"""/v1/profiles"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.profiles import ProfileAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.services.messages import ProfileInfo

router = APIRouter(prefix="/profiles", tags=["profiles"])


@router.get("")
def list_all(services: ServicesOf, caller: CallerOf, paging: PagingOf) -> list[ProfileAnswer]:
    """Offerings and vGPU types that some host offers now, with how many more fit."""
    found = paging.cut(services.profiles.list(caller.visible(None)), _place)
    return [ProfileAnswer.of(info, watching=bool(caller.everywhere)) for info in found]


def _place(info: ProfileInfo) -> tuple[str, str]:
    """Ours first."""
    return "0" if info.offering.written_down else "1", info.offering.name


@router.get("/{name:path}")
def get(name: str, services: ServicesOf, caller: CallerOf) -> ProfileAnswer:
    """One profile by any name that create takes."""
    return ProfileAnswer.of(services.profiles.get(name, caller.visible(None)), watching=bool(caller.everywhere))
