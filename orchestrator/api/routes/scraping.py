# SPDX-License-Identifier: Apache-2.0
"""/v1/metrics: what is read on hosts, for Prometheus and who speaks its language. Counts of the pool itself are at
/metrics."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import Response

from orchestrator.api.auth import CallerOf
from orchestrator.api.reading_metrics import dcgm_families, encoded, host_families, tenant_families
from orchestrator.api.schemas.base import TenantInPath
from orchestrator.api.schemas.readings import ScrapeTargets
from orchestrator.api.services import ServicesOf, TenantFilter
from orchestrator.api.visibility import watches_pool
from orchestrator.catalogue.metric_names import DcgmNames

HostInPath = Annotated[str, Path(description="Name of the host")]
Accept = Annotated[str, Header(description="OpenMetrics, or Prometheus's text")]
_PAGE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}, "description": "Metrics of this moment"}
}

router = APIRouter(prefix="/metrics", tags=["metrics"])


@router.get("/hosts/{host}", response_class=Response, responses=_PAGE)
def of_host(host: HostInPath, services: ServicesOf, accept: Accept = "") -> Response:
    """Get a host's metrics. Everything that is read there; of a host that is silent only that it is."""
    page, media_type = encoded(host_families(services.readings.site, services.readings.of_host(host)), accept)
    return Response(page, media_type=media_type)


@router.get("/tenants/{tenant}", response_class=Response, responses=_PAGE)
def of_tenant(tenant: TenantInPath, services: ServicesOf, accept: Accept = "") -> Response:
    """Get a tenant's metrics. Of its VMs, their vGPUs and GPU instances, and its networks; no host, GPU or neighbour is
    named."""
    vms = services.readings.of_tenant(tenant)
    families = tenant_families(services.readings.site, tenant, vms, services.network_readings.sums(tenant, vms))
    page, media_type = encoded(families, accept)
    return Response(page, media_type=media_type)


@router.get("/dcgm/{host}", response_class=Response, responses=_PAGE)
def dcgm(
    host: HostInPath,
    services: ServicesOf,
    accept: Accept = "",
    names: Annotated[DcgmNames, Query(description="legacy: before DCGM 4.6")] = "legacy",
) -> Response:
    """Get a host's metrics by DCGM's names. For boards that were made for NVIDIA's exporter."""
    page, media_type = encoded(dcgm_families(services.readings.of_host(host), names), accept)
    return Response(page, media_type=media_type)


@router.get("/targets")
def targets(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    tenant: TenantFilter = None,
    pages: Annotated[Literal["own", "dcgm"], Query(description="dcgm: by DCGM's names")] = "own",
) -> list[ScrapeTargets]:
    """List pages to scrape. For http_sd_configs: of all hosts, or of the tenants that the caller may know of."""
    if watches_pool(caller) and tenant is None:
        kind = "hosts" if pages == "own" else "dcgm"
        hosts = services.readings.hosts()
        return [_target(request, f"/v1/metrics/{kind}/{host.name}", {"host": host.name}) for host in hosts]
    known = sorted(caller.visible(tenant) or ())
    return [_target(request, f"/v1/metrics/tenants/{name}", {"tenant": name}) for name in known]


def _target(request: Request, path: str, labels: dict[str, str]) -> ScrapeTargets:
    """At the address that the caller has reached us by."""
    own = {"__metrics_path__": path, "__scheme__": request.url.scheme}
    return ScrapeTargets(targets=(request.url.netloc,), labels=own | labels)
