# SPDX-License-Identifier: Apache-2.0
"""/v1/profiles"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from orchestrator.api.auth import CallerOf
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.schemas.profiles import ProfileAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.api.visibility import check_may_know_free, check_may_name_place
from orchestrator.core.offerings.offering import OfferingKind
from orchestrator.services.messages import ProfileFilter, ProfileInfo

router = APIRouter(prefix="/profiles", tags=["profiles"])


async def _filter(
    kind: Annotated[OfferingKind | None, Query(description="Only those of this kind")] = None,
    model: Annotated[
        str | None,
        Query(
            max_length=MAX_NAME,
            description="Only what a GPU of this model gives: its name, or what several have in theirs",
        ),
    ] = None,
    host: Annotated[
        str | None, Query(max_length=MAX_NAME, description="Only what this host offers; for who runs the pool")
    ] = None,
    free: Annotated[bool, Query(description="Only those of which one more fits now; for who runs the pool")] = False,
    available: Annotated[bool, Query(description="Only those that some host offers")] = False,
) -> ProfileFilter:
    return ProfileFilter(kind=kind, model=model, host=host, free=free, available=available)


ProfileFilterOf = Annotated[ProfileFilter, Depends(_filter)]
ProfileInPath = Annotated[str, Path(description="What it is called")]


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, only: ProfileFilterOf
) -> list[ProfileAnswer]:
    """List profiles. Offerings and vGPU types that some host offers now, with how many more fit."""
    check_may_name_place(caller, only.host)
    if only.free:
        check_may_know_free(caller)
    if only.host is not None:
        services.hosts.get(only.host)
    profiles, watching = services.profiles.list(caller.visible(None), only), bool(caller.everywhere)
    return paging.answers(ProfileAnswer, profiles, _place, lambda info: ProfileAnswer.of(info, watching=watching))


def _place(info: ProfileInfo) -> tuple[str, str]:
    """Ours first."""
    return "0" if info.offering.written_down else "1", info.offering.name


@router.get("/{name:path}")
def get(name: ProfileInPath, services: ServicesOf, caller: CallerOf) -> ProfileAnswer:
    """Get a profile."""
    return ProfileAnswer.of(services.profiles.get(name, caller.visible(None)), watching=bool(caller.everywhere))
