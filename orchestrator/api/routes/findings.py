# SPDX-License-Identifier: Apache-2.0
"""/v1/findings"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.findings import FindingAnswer, RepairsAnswer, Which
from orchestrator.api.services import ServicesOf
from orchestrator.core.errors import InvalidInput

router = APIRouter(prefix="/findings", tags=["findings"])

HostOf = Annotated[str | None, Query(max_length=255, description="Only this host's")]
RemoveOf = Annotated[
    str | None,
    Query(max_length=64, description="After a restore: remove all that the host has of the VM or volume with this id"),
]


@router.get("")
def list_all(
    services: ServicesOf,
    paging: PagingOf,
    host: HostOf = None,
    which: Which = "standing",
) -> list[FindingAnswer]:
    """List findings. What differs, as the last observation of each host showed it; ``all``: also what differed once."""
    findings = services.findings.list(host=host, cleared=which == "all")
    return [FindingAnswer.of(stored) for stored in paging.cut(findings, lambda stored: stored.finding.key)]


@router.post("/look")
def observe(services: ServicesOf, host: HostOf = None) -> list[FindingAnswer]:
    """Observe hosts for findings. Look at the hosts now; what is safe is repaired, the rest is told."""
    return [FindingAnswer.of(stored) for stored in services.findings.observe(host)]


@router.post("/repair")
def repair(services: ServicesOf, host: HostOf = None, remove: RemoveOf = None) -> RepairsAnswer:
    """Repair findings. Begin every repair that the standing findings have; with ``remove`` that alone."""
    if remove is not None:
        if host is None:
            raise InvalidInput("request.invalid", "remove is given without a host", hint="give host as well")
        return RepairsAnswer(operations=list(services.findings.remove(host=host, owner=remove)))
    return RepairsAnswer(operations=list(services.findings.repair(host=host)))
