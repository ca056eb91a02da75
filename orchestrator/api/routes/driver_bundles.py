# SPDX-License-Identifier: Apache-2.0
"""/v1/driver-bundles"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from orchestrator.api.file_bodies import OCTETS, take_file, with_files
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.drivers import AddDriverBundleBody, DriverBundleAnswer
from orchestrator.api.services import ProcessOf, ServicesOf
from orchestrator.core.drivers.bundle import NewBundle

router = APIRouter(prefix="/driver-bundles", tags=["drivers"])

_MAX_TEXT = 6144
"""OpenPGP programs write some thousand characters. They stand in the address here, and a server reads 16 KiB before it
knows what is asked."""
Digest = Annotated[
    str, Path(description="Of the file, 64 hexadecimal digits", json_schema_extra={"pattern": "^[0-9a-f]{64}$"})
]


@router.post("", status_code=201)
async def add(body: AddDriverBundleBody, services: ServicesOf) -> DriverBundleAnswer:
    """Add a driver bundle. Take a signed driver of the server's machine; answers when digest and signature are
    checked and it is stored."""
    return DriverBundleAnswer.of(await with_files(lambda: services.driver_bundles.add(body.wanted())))


@router.put("/{sha256}/content", openapi_extra=OCTETS)
async def upload(
    sha256: Digest,
    key: Annotated[str, Query(max_length=_MAX_TEXT, description="The signer's public key of OpenPGP, armored")],
    request: Request,
    services: ServicesOf,
    process: ProcessOf,
    signature: Annotated[
        str | None, Query(max_length=_MAX_TEXT, description="What was written beside it; else: inside of a deb or rpm")
    ] = None,
) -> DriverBundleAnswer:
    """Upload a driver bundle's content. Send a signed driver; answers when digest and signature are checked and it
    is stored."""
    bundle = await take_file(
        request,
        process,
        lambda parts, size: services.driver_bundles.add(
            NewBundle(source=parts, size_bytes=size, signature=signature, key=key, sha256=sha256)
        ),
    )
    return DriverBundleAnswer.of(bundle)


@router.get("")
def list_all(services: ServicesOf, paging: SortedPagingOf) -> list[DriverBundleAnswer]:
    """List driver bundles by kind and version."""
    return paging.answers(
        DriverBundleAnswer,
        services.driver_bundles.list(),
        lambda stored: (stored.content.kind, stored.content.version, stored.sha256),
        DriverBundleAnswer.of,
    )


@router.get("/{sha256}")
def get(sha256: Digest, services: ServicesOf) -> DriverBundleAnswer:
    """Get a driver bundle."""
    return DriverBundleAnswer.of(services.driver_bundles.get(sha256))


@router.delete("/{sha256}", status_code=204)
def remove(sha256: Digest, services: ServicesOf) -> None:
    """Remove a driver bundle. Forget a driver and delete its file here; no host is touched."""
    services.driver_bundles.remove(sha256)
