# SPDX-License-Identifier: Apache-2.0
"""/controllers: what servers of one database ask each other for. No part of the versioned API; each shows a secret."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header
from fastapi.responses import FileResponse

from orchestrator.api.http_requests import no_repeated_names, storable_target
from orchestrator.api.schemas.server import JoinAnswer, JoinBody, ReadingsBody
from orchestrator.api.services import ServicesOf
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.errors import Denied, NotFound
from orchestrator.core.readings.received import received_to_dict

router = APIRouter(
    prefix="/controllers", include_in_schema=False, dependencies=[Depends(storable_target), Depends(no_repeated_names)]
)

_FILE: Final = re.compile(r"([0-9a-f]{64})\.(qcow2|raw)", re.ASCII)
_PARTS: Final = 3
_FORMATS: Final[dict[str, ImageFormat]] = {"qcow2": "qcow2", "raw": "raw"}


@router.post("/join")
def join(body: JoinBody, services: ServicesOf) -> JoinAnswer:
    """The site's key, for the token of an invitation."""
    site, key = services.controllers.join(body.id, body.secret)
    return JoinAnswer(site=site, key=key)


@router.get("/images/{file}")
def image(file: str, services: ServicesOf, authorization: Annotated[str, Header()] = "") -> FileResponse:
    """The content of a base image."""
    shown = _shown(authorization)
    wanted = _FILE.fullmatch(file)
    if wanted is None:
        raise NotFound("image.unknown", "that is no image", hint="ask for its SHA-256 and format")
    path = services.controllers.image(*shown, wanted[1], _FORMATS[wanted[2]])
    return FileResponse(path, media_type="application/octet-stream")


@router.post("/readings")
def readings(
    body: ReadingsBody, services: ServicesOf, authorization: Annotated[str, Header()] = ""
) -> dict[str, object]:
    """What this controller hears of hosts, by their names."""
    received = services.controllers.readings(*_shown(authorization), body.hosts)
    return {host: received_to_dict(last, moments=body.moments) for host, last in received.items()}


def _shown(authorization: str) -> tuple[str, str]:
    """Name and secret of the controller that asks. :raises Denied: ``controller.unknown``"""
    shown = authorization.split(" ")
    if len(shown) != _PARTS or shown[0] != "Controller":
        raise Denied("controller.unknown", "no controller of this site shows that", hint="only controllers may ask")
    return shown[1], shown[2]
