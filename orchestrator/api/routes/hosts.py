# SPDX-License-Identifier: Apache-2.0
"""/v1/hosts"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from orchestrator.api.http_answers import started
from orchestrator.api.paging import SortedPagingOf, counted_of, moment_of
from orchestrator.api.routes.maintenances import answer as maintenance_answer
from orchestrator.api.schemas.base import NameInPath
from orchestrator.api.schemas.hosts import (
    AddHostBody,
    ChangeHostBody,
    CheckHostBody,
    CordonHostBody,
    ForgetHostBody,
    HostAnswer,
    HostCheckAnswer,
    HostKeyAnswer,
    HostProvisioningPlanAnswer,
    ScanHostBody,
)
from orchestrator.api.schemas.maintenances import DrainHostBody, EvacuateHostBody, MaintenanceAnswer
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import SelectorOf, ServicesOf
from orchestrator.core.hosts.host import HostCondition
from orchestrator.services.maintenance.maintenances import WantedDrain
from orchestrator.store.pages import HOST_ORDERS

router = APIRouter(prefix="/hosts", tags=["hosts"])


@router.post("/scan")
def scan(body: ScanHostBody, services: ServicesOf) -> HostKeyAnswer:
    """Scan a host for its key. The SSH host key at an address, for the operator to confirm; nothing is pinned."""
    return HostKeyAnswer.of(services.hosts.scan(body.address, body.port))


@router.post("/check")
def check_new(body: CheckHostBody, services: ServicesOf) -> HostCheckAnswer:
    """Check a host before it is added. Says what it lacks; changes nothing and keeps nothing.
    Takes some seconds."""
    requirements = services.host_checks.check_new(
        body.address, body.port, body.user, body.provisioning_key, body.fingerprint
    )
    return HostCheckAnswer.of(requirements)


@router.post("/{name}/check")
def check(name: NameInPath, services: ServicesOf) -> HostCheckAnswer:
    """Check a host. What a host lacks; changes nothing. Takes some seconds."""
    return HostCheckAnswer.of(services.host_checks.check(name))


@router.post("", status_code=202)
def add(response: Response, body: AddHostBody, services: ServicesOf) -> StartedAnswer:
    """Add a host."""
    return started(response, services.hosts.add(body.to_request()), made="hosts")


OfState = Annotated[HostCondition | None, Query(description="Only hosts in this state, or those that are cordoned")]


@router.get("")
def list_all(
    services: ServicesOf, paging: SortedPagingOf, selector: SelectorOf, state: OfState = None
) -> list[HostAnswer]:
    """List hosts by name."""
    member = paging.sort_name(HOST_ORDERS) if paging.sort else "name"
    after = paging.after(2)
    key = None if after is None else (_value_of(member, after[0]), after[1])
    rows, total = services.hosts.page(selector, state, paging.sort or "name", key, paging.limit + 1)
    page = paging.page(list(rows), lambda row: (_text_of(row[1]), row[0].host.name), lambda: total)
    return [HostAnswer.of(info) for info, _ in page]


def _text_of(value: object) -> str:
    """In a cursor."""
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)


def _value_of(member: str, text: str) -> object:
    """:raises InvalidInput: ``request.cursor``"""
    if member == "last_seen_at":
        return moment_of(text) if text else None
    return bool(counted_of(text)) if member == "cordoned" else counted_of(text) if member == "gpus" else text


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf) -> HostAnswer:
    """Get a host."""
    return HostAnswer.of(services.hosts.get(name))


@router.patch("/{name}")
def change(name: NameInPath, body: ChangeHostBody, services: ServicesOf) -> HostAnswer:
    """Change a host. Set overcommit and labels; what is not named stays."""
    return HostAnswer.of(services.hosts.change(name, body.to_request()))


@router.delete("/{name}", status_code=202)
def remove(response: Response, name: NameInPath, services: ServicesOf) -> StartedAnswer:
    """Remove a host. Give the host back as it was; refused while VMs are there."""
    return started(response, services.hosts.remove(name))


@router.post("/{name}/forget")
def forget(name: NameInPath, body: ForgetHostBody, services: ServicesOf) -> HostAnswer:
    """Forget a host. Give up a host that will never come back: its VMs are lost, what it held is free again."""
    return HostAnswer.of(services.hosts.forget(name, confirm=body.confirm))


@router.post("/{name}/upgrade-agent", status_code=202)
def upgrade_agent(response: Response, name: NameInPath, services: ServicesOf) -> StartedAnswer:
    """Upgrade a host's agent. Install this version's agent; VMs are left alone."""
    return started(response, services.hosts.upgrade_agent(name))


@router.post("/{name}/provision", status_code=202)
def provision(response: Response, name: NameInPath, services: ServicesOf) -> StartedAnswer:
    """Provision a host with its driver. Put the locked driver on a host, what its system needs for it, and OVN where
    its label ``ovn`` asks for that; refused while anything uses the GPUs."""
    return started(response, services.provisioning.provision(name))


@router.post("/{name}/provision/plan")
def plan_provisioning(name: NameInPath, services: ServicesOf) -> HostProvisioningPlanAnswer:
    """Say what provisioning a host would change. Changes nothing. Takes some seconds of a host whose label ``ovn`` asks
    for OVN."""
    return HostProvisioningPlanAnswer(changes=services.provisioning.plan(name))


@router.post("/{name}/cordon")
def cordon(name: NameInPath, services: ServicesOf, body: CordonHostBody | None = None) -> HostAnswer:
    """Cordon a host. Place no new VMs there."""
    return HostAnswer.of(services.hosts.cordon(name, None if body is None else body.reason))


@router.post("/{name}/drain", status_code=202)
def drain(name: NameInPath, services: ServicesOf, body: DrainHostBody | None = None) -> MaintenanceAnswer:
    """Drain a host. Declare that it is emptied of VMs; uncordoning it has it serve again."""
    wanted = WantedDrain() if body is None else body.to_request()
    return maintenance_answer(services, services.maintenances.drain(name, wanted))


@router.post("/{name}/reboot", status_code=202)
def reboot(name: NameInPath, services: ServicesOf, body: DrainHostBody | None = None) -> MaintenanceAnswer:
    """Reboot a host. Declare that it is emptied of VMs, as by a drain, then rebooted; it serves again by itself once
    all that was well before is."""
    wanted = WantedDrain() if body is None else body.to_request()
    return maintenance_answer(services, services.maintenances.drain(name, wanted, act="reboot"))


@router.post("/{name}/evacuate", status_code=202)
def evacuate(name: NameInPath, body: EvacuateHostBody, services: ServicesOf) -> MaintenanceAnswer:
    """Evacuate a dead host. VMs whose disks other hosts reach start there, once it is certain that it is off."""
    return maintenance_answer(services, services.maintenances.evacuate(name, body.to_request()))


@router.post("/{name}/uncordon")
def uncordon(name: NameInPath, services: ServicesOf) -> HostAnswer:
    """Uncordon a host. Place VMs there again; those that were stopped when it was drained start."""
    return HostAnswer.of(services.hosts.uncordon(name))
