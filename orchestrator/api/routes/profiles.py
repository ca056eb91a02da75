# SPDX-License-Identifier: Apache-2.0
"""/v1/profiles"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.schemas.profiles import ProfileAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/profiles", tags=["profiles"])


@router.get("")
def list_all(services: ServicesOf) -> list[ProfileAnswer]:
    """Offerings and vGPU types that some host offers now, with how many more fit."""
    return [ProfileAnswer.of(info) for info in services.profiles.list()]


@router.get("/{name:path}")
def get(name: str, services: ServicesOf) -> ProfileAnswer:
    """One profile by any name that create takes."""
    return ProfileAnswer.of(services.profiles.get(name))
