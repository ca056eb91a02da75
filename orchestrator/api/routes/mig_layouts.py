# SPDX-License-Identifier: Apache-2.0
"""/v1/hosts/{name}/mig-layout"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.api.http_answers import started
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.gpus import LayoutPlanAnswer, MigLayoutBody
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/hosts", tags=["hosts"])

OfGpu = Annotated[str | None, Query(max_length=40, description="PCI address; without it all GPUs that have a layout")]


@router.post("/{name}/mig-layout/plan")
def plan(name: NameInPath, body: MigLayoutBody, services: ServicesOf) -> list[LayoutPlanAnswer]:
    """Plan a host's MIG layout. What a configuration would do to each GPU; changes nothing."""
    return [LayoutPlanAnswer.of(change) for change in services.mig_layouts.plan(name, body.to_core())]


@router.put("/{name}/mig-layout", status_code=202)
def apply(name: NameInPath, body: MigLayoutBody, services: ServicesOf) -> StartedAnswer:
    """Apply a host's MIG layout. Cut the host's GPUs so and keep them so; refused where anything of others is on
    one."""
    return StartedAnswer.of(services.mig_layouts.apply(name, body.to_core()))


@router.delete("/{name}/mig-layout", status_code=202)
def release(response: Response, name: NameInPath, services: ServicesOf, gpu: OfGpu = None) -> StartedAnswer:
    """Release a host's MIG layout. Remove the GPU instances of layouts; VMs may have the GPUs again."""
    return started(response, services.mig_layouts.release(name, gpu))
