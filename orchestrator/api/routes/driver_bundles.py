# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-bundles"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.driver_bundles import AddDriverBundleBody, DriverBundleAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/driver-bundles", tags=["drivers"])

Digest = Annotated[str, Path(json_schema_extra={"pattern": "^[0-9a-f]{64}$"})]


@router.post("", status_code=201)
def add(body: AddDriverBundleBody, services: ServicesOf) -> DriverBundleAnswer:
    """Take a signed driver; answers when digest and signature are checked and it is stored."""
    bundle = services.driver_bundles.add(body.source, body.signature, body.key, body.sha256)
    return DriverBundleAnswer.of(bundle)


@router.get("")
def list_all(services: ServicesOf, paging: PagingOf) -> list[DriverBundleAnswer]:
    """Drivers by kind and version."""
    found = paging.cut(services.driver_bundles.list(), lambda one: (one.content.kind, one.content.version, one.sha256))
    return [DriverBundleAnswer.of(bundle) for bundle in found]


@router.get("/{sha256}")
def get(sha256: Digest, services: ServicesOf) -> DriverBundleAnswer:
    """One driver."""
    return DriverBundleAnswer.of(services.driver_bundles.get(sha256))


@router.delete("/{sha256}", status_code=204)
def remove(sha256: Digest, services: ServicesOf) -> None:
    """Forget a driver and delete its file here; no host is touched."""
    services.driver_bundles.remove(sha256)
