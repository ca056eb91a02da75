# SPDX-License-Identifier: Apache-2.0
"""/v1/readings"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Query

from orchestrator.api.auth import CallerOf
from orchestrator.api.paging import Key, Paging, PagingOf
from orchestrator.api.schemas.activities import GpuActivityAnswer, HostActivityAnswer, VmActivityAnswer
from orchestrator.api.schemas.base import MAX_NAME, AnswerBody, VmInPath
from orchestrator.api.schemas.readings import HostReadingsAnswer, VmReadingsAnswer
from orchestrator.api.services import OfModel, ServicesOf, TenantFilter, TenantOf
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.model import models_meant
from orchestrator.core.readings.quantities import SubjectKind
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

HostInPath = Annotated[str, Path(description="Name of the host")]
OfGpu = Annotated[
    str | None, Query(max_length=MAX_NAME, description="Only of the GPU with this PCI address, and what lies on it")
]
OfKind = Annotated[SubjectKind | None, Query(description="Only of these")]
WithHistory = Annotated[bool, Query(alias="history", description="With the last five minutes of what is charted")]
Activity = TypeVar("Activity", bound=AnswerBody)

router = APIRouter(prefix="/readings", tags=["readings"])


@dataclass(frozen=True)
class Arranged:
    """Which rows of a list are wanted, and which first."""

    text: str | None
    sort: str | None

    def page(
        self, rows: Iterable[Activity], of: type[Activity], paging: Paging, key: Callable[[Activity], Key]
    ) -> list[Activity]:
        """In the order of names page after page; in another one the first of all, as what moves has no next page.

        :raises InvalidInput: ``request.sort``
        """
        text = None if self.text is None else self.text.casefold()
        picked = [row for row in rows if text is None or _has(row, text)]
        if self.sort is None:
            return paging.cut(picked, key)
        ordered = sorted(picked, key=key)
        for member in reversed(self.sort.split(",")):
            name = member.removeprefix("-")
            if name not in of.model_fields:
                hint = f"one of {', '.join(of.model_fields)}; -NAME: the other way round"
                raise InvalidInput("request.sort", f"nothing here is called {name[:40]!a}", hint=hint)
            ordered = _sorted_by(name, ordered, backwards=member.startswith("-"))
        return paging.first(ordered)


async def _arranged(
    text: Annotated[
        str | None, Query(alias="filter", max_length=MAX_NAME, description="Only rows with this in one of them")
    ] = None,
    sort: Annotated[
        str | None,
        Query(max_length=MAX_NAME, description="Members with commas between, -MEMBER: the other way round; one page"),
    ] = None,
) -> Arranged:
    return Arranged(text, sort)


ArrangedOf = Annotated[Arranged, Depends(_arranged)]


@router.get("/hosts")
def list_hosts(services: ServicesOf, paging: PagingOf, arranged: ArrangedOf) -> list[HostActivityAnswer]:
    """List what hosts do now. GPUs of each together."""
    rows = map(HostActivityAnswer.of, services.readings.of_hosts())
    return arranged.page(rows, HostActivityAnswer, paging, lambda host: (host.host,))


@router.get("/gpus")
def list_gpus(
    services: ServicesOf,
    paging: PagingOf,
    arranged: ArrangedOf,
    host: Annotated[str | None, Query(max_length=MAX_NAME, description="Only GPUs of this host")] = None,
    model: OfModel = None,
) -> list[GpuActivityAnswer]:
    """List what GPUs do now. Without those of hosts that are silent.

    :raises NotFound: ``gpu.model_unknown``
    """
    hosts = services.readings.of_hosts() if host is None else (services.readings.of_host(host),)
    meant = models_meant(model, (gpu.model for readings in hosts for gpu in readings.known.seen))
    gpus = (gpu for readings in hosts for gpu in GpuActivityAnswer.all_of(readings))
    rows = (gpu for gpu in gpus if gpu.model in meant)
    return arranged.page(rows, GpuActivityAnswer, paging, lambda gpu: (gpu.host, gpu.address))


@router.get("/vms")
def list_vms(
    services: ServicesOf, caller: CallerOf, paging: PagingOf, arranged: ArrangedOf, tenant: TenantFilter = None
) -> list[VmActivityAnswer]:
    """List what VMs do now. Those that run, each with its vGPUs together."""
    readings = services.readings.of_tenants(caller.visible(tenant))
    rows = (VmActivityAnswer.of(vm) for vm in readings if vm.vm.state == "running")
    return arranged.page(rows, VmActivityAnswer, paging, lambda vm: (vm.name,))


@router.get("/hosts/{host}")
def of_host(
    host: HostInPath, services: ServicesOf, gpu: OfGpu = None, kind: OfKind = None, history: WithHistory = False
) -> HostReadingsAnswer:
    """Get a host's readings. What its GPUs, GPU instances, vGPUs and VMs do now; nothing that is older than 30 s."""
    return HostReadingsAnswer.of(services.readings.of_host(host).only(gpu, kind), history=history)


@router.get("/vms/{name}")
def of_vm(
    name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT, history: WithHistory = False
) -> VmReadingsAnswer:
    """Get a VM's readings. What it and its vGPUs do now; nothing that is older than 30 s."""
    return VmReadingsAnswer.of(services.readings.of_vm(tenant, name), history=history)


def _has(row: AnswerBody, text: str) -> bool:
    return any(text in str(member).casefold() for _, member in row)


def _sorted_by(member: str, rows: list[Activity], *, backwards: bool) -> list[Activity]:
    """What was not read is last, in either direction; what is alike stays in order."""
    read = [row for row in rows if getattr(row, member) is not None]
    rest = [row for row in rows if getattr(row, member) is None]
    return [*sorted(read, key=lambda row: getattr(row, member), reverse=backwards), *rest]
