# SPDX-License-Identifier: Apache-2.0
"""/v1/hosts"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from orchestrator.api.http_answers import started
from orchestrator.api.paging import SortedPagingOf
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
    ScanHostBody,
)
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import SelectorOf, ServicesOf
from orchestrator.core.hosts.host import Host, HostCondition
from orchestrator.services.messages import HostFilter

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
_SORTED_BY: Final[Mapping[str, Callable[[Host], object]]] = {
    "name": lambda host: host.name,
    "state": lambda host: host.state,
    "address": lambda host: host.address,
    "cordoned": lambda host: host.cordoned,
    "gpus": lambda host: len(host.managed_gpus),
    "last_seen_at": lambda host: host.last_seen_at,
}
"""What is known of a host without its snapshot."""


@router.get("")
def list_all(
    services: ServicesOf, paging: SortedPagingOf, selector: SelectorOf, state: OfState = None
) -> list[HostAnswer]:
    """List hosts by name."""
    only = HostFilter(selector, state)
    if paging.sort is not None:
        picked = paging.arranged(services.hosts.picked(only), lambda host: (host.name,), _SORTED_BY)
        return [HostAnswer.of(info) for info in services.hosts.infos(picked)]
    after = paging.after(1)
    infos, total = services.hosts.page(only, None if after is None else after[0], paging.limit + 1)
    return [HostAnswer.of(info) for info in paging.page(list(infos), lambda info: (info.host.name,), lambda: total)]


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
    """Provision a host with its driver. Put the locked driver on a host, and what its system needs for it; refused
    while anything uses the GPUs."""
    return started(response, services.provisioning.provision(name))


@router.post("/{name}/cordon")
def cordon(name: NameInPath, services: ServicesOf, body: CordonHostBody | None = None) -> HostAnswer:
    """Cordon a host. Place no new VMs there."""
    return HostAnswer.of(services.hosts.cordon(name, None if body is None else body.reason))


@router.post("/{name}/uncordon")
def uncordon(name: NameInPath, services: ServicesOf) -> HostAnswer:
    """Uncordon a host. Place VMs there again."""
    return HostAnswer.of(services.hosts.uncordon(name))
