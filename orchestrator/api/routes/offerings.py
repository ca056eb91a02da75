# SPDX-License-Identifier: Apache-2.0
"""/v1/offerings: those that the site adds. /v1/profiles shows them among all that create takes."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.profiles import OfferingAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.catalogue.offering_schema import OfferingForm

router = APIRouter(prefix="/offerings", tags=["offerings"])


@router.put("")
def put(body: OfferingForm, services: ServicesOf) -> OfferingAnswer:
    """Put an offering. Add an offering, or change one that no VM has."""
    return OfferingAnswer.of(services.offerings.put(body.to_core("site"), look_up=not body.unlisted))


@router.get("")
def list_all(services: ServicesOf, caller: CallerOf, paging: PagingOf) -> list[OfferingAnswer]:
    """List offerings. Those of the site, by name; of those on hosts that are kept for a tenant only the caller's
    own."""
    offerings = services.offerings.list(caller.visible(None))
    return [OfferingAnswer.of(offering) for offering in paging.cut(offerings, lambda offering: (offering.name,))]


@router.delete("/{name}", status_code=204)
def remove(name: NameInPath, services: ServicesOf) -> None:
    """Remove an offering that no VM has."""
    services.offerings.remove(name)
