# SPDX-License-Identifier: Apache-2.0
"""/v1/vms"""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.api.auth import CallerOf
from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.schemas.vms import AdoptVmBody, CreateVmBody, ExtendBody, PlanAnswer, VmAnswer, vm_members
from orchestrator.api.services import ServicesOf, TenantFilter, TenantOf
from orchestrator.core.tenant import DEFAULT_TENANT

router = APIRouter(prefix="/vms", tags=["vms"])


@router.post("", status_code=202)
def create(body: CreateVmBody, services: ServicesOf, caller: CallerOf) -> StartedAnswer:
    """Create a VM. The same request again is answered with what it started before."""
    return StartedAnswer.of(services.vms.create(body.to_request()), caller.tenants)


@router.post("/plan")
def plan(body: CreateVmBody, services: ServicesOf, caller: CallerOf) -> PlanAnswer:
    """What create would do; nothing is stored."""
    return PlanAnswer.of(services.vms.plan(body.to_request()), caller.tenants)


@router.post("/adopt", status_code=202)
def adopt(body: AdoptVmBody, services: ServicesOf) -> StartedAnswer:
    """Make a VM of a domain that somebody else made. Nothing that runs is changed."""
    return StartedAnswer.of(services.adoption.adopt(body.to_request()))


@router.get("", response_model=list[VmAnswer])
def list_all(services: ServicesOf, caller: CallerOf, paging: PagingOf, tenant: TenantFilter = None) -> Response:
    """VMs by tenant and name."""
    found = services.vms.list(caller.visible(tenant))
    unseen = services.vms.unseen()
    return paging.answer(
        [vm_members(vm, unseen) for vm in paging.cut(found, lambda vm: (vm.spec.tenant, vm.spec.name))]
    )


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> VmAnswer:
    """One VM."""
    return VmAnswer.of(services.vms.get(tenant, name), services.vms.unseen())


@router.delete("/{name}", status_code=202)
def delete(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> StartedAnswer:
    """Delete a VM; a create that still runs is cancelled first."""
    return StartedAnswer.of(services.vms.delete(tenant, name))


@router.post("/{name}/start", status_code=202)
def start(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> StartedAnswer:
    """Make the device again and start the VM."""
    return StartedAnswer.of(services.vms.start(tenant, name))


@router.post("/{name}/stop", status_code=202)
def stop(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> StartedAnswer:
    """Shut the VM down and remove its device; the claim stays."""
    return StartedAnswer.of(services.vms.stop(tenant, name))


@router.post("/{name}/extend")
def extend(name: NameInPath, body: ExtendBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> VmAnswer:
    """Make its lease longer, within what the tenant's policy allows."""
    return VmAnswer.of(services.vms.extend(tenant, name, body.to_request()), services.vms.unseen())
