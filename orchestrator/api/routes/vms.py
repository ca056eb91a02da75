# SPDX-License-Identifier: Apache-2.0
"""/v1/vms"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from anyio import to_thread
from fastapi import APIRouter, Depends, Path, Query, Response

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import started
from orchestrator.api.paging import PagingOf, SortedPagingOf, moment_of, sequence_of
from orchestrator.api.routes.guest_streams import OPENING, stream_place
from orchestrator.api.schemas.base import MAX_NAME, ProblemAnswer, VmInPath
from orchestrator.api.schemas.moves import MovePlanAnswer, MovesAnswer, MoveVmBody
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.schemas.sizes import ResizePlanAnswer, ResizeVmBody
from orchestrator.api.schemas.vm_parts import ChooseMaintenanceBody
from orchestrator.api.schemas.vms import (
    AdoptVmBody,
    ChangeVmBody,
    ConsoleLogAnswer,
    CreateVmBody,
    ExtendLeaseBody,
    RenameVmBody,
    VmAnswer,
    VmPlanAnswer,
    vm_json,
)
from orchestrator.api.services import SelectorOf, ServicesOf, TenantFilter, TenantOf
from orchestrator.api.use_cases import Services
from orchestrator.api.visibility import check_may_name_place, watches_pool
from orchestrator.core.domain_xml.console import MAX_LOG_BYTES
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.health_states import MAX_WORD
from orchestrator.core.labels import Selector, selects
from orchestrator.core.moves.verdicts import HostMoves, MoveKind
from orchestrator.core.tenancy.access import Caller
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.console_session import ConsoleKind
from orchestrator.core.vms.lease import parse_moment
from orchestrator.core.vms.vm import Vm, VmState
from orchestrator.store.records import VmFilter

router = APIRouter(prefix="/vms", tags=["vms"])

Force = Annotated[bool, Query(description="Power off at once, without asking the guest")]

GpuWasBad = Annotated[
    str | None, Query(max_length=MAX_WORD, description="That its GPU was bad, and how: it is on watch, once it is gone")
]

LogBytes = Annotated[int, Query(ge=1, le=MAX_LOG_BYTES, description="At most so many bytes")]
KindInPath = Annotated[ConsoleKind, Path(description="Which console")]
Port = Annotated[int, Path(ge=1, le=65535, description="TCP port of the guest")]
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    101: {
        "description": "A websocket (RFC 6455): the guest's bytes in binary messages, both ways, until an end closes"
    },
    426: {"model": ProblemAnswer, "description": "The request did not ask for a websocket"},
}


@dataclass(frozen=True)
class PickedVms:
    """All that is given must hold."""

    state: VmState | None
    host: str | None
    profile: str | None
    label: str | None
    selector: Selector

    @property
    def of_store(self) -> VmFilter:
        """What of it the database decides."""
        return {"state": self.state, "host": self.host, "profile": self.profile}

    @property
    def is_of_store(self) -> bool:
        """Whether that is all of it."""
        return self.label is None and not self.selector

    def picks(self, vm: Vm) -> bool:
        """Whether a VM that the database has picked is to be in the list."""
        return (
            (self.profile is None or vm.spec.profile == self.profile)
            and (self.label is None or vm.spec.label == self.label)
            and (not self.selector or selects(self.selector, vm.spec.labels))
        )


async def _filter(
    selector: SelectorOf,
    state: Annotated[VmState | None, Query(description="Only VMs in this state")] = None,
    host: Annotated[str | None, Query(max_length=MAX_NAME, description="Only VMs there; for who runs the pool")] = None,
    profile: Annotated[str | None, Query(max_length=MAX_NAME, description="Only VMs made with this profile")] = None,
    label: Annotated[str | None, Query(max_length=MAX_NAME, description="Only those that such a file made")] = None,
) -> PickedVms:
    return PickedVms(state, host, profile, label, selector)


VmFilterOf = Annotated[PickedVms, Depends(_filter)]


@router.post("", status_code=202)
def create(response: Response, body: CreateVmBody, services: ServicesOf, caller: CallerOf) -> StartedAnswer:
    """Create a VM. The same request again is answered with what it started before."""
    check_may_name_place(caller, body.host, body.gpu)
    return started(response, services.vms.create(body.to_request()), caller.tenants, made="vms")


@router.post("/plan")
def plan(body: CreateVmBody, services: ServicesOf, caller: CallerOf) -> VmPlanAnswer:
    """Plan a VM. What create would do; nothing is stored."""
    check_may_name_place(caller, body.host, body.gpu)
    return VmPlanAnswer.of(services.vms.plan(body.to_request(), coarse=not watches_pool(caller)), caller.tenants)


@router.post("/adopt", status_code=202)
def adopt(response: Response, body: AdoptVmBody, services: ServicesOf) -> StartedAnswer:
    """Adopt a VM. Make a VM of a domain that somebody else made. Nothing that runs is changed."""
    return started(response, services.adoption.adopt(body.to_request()), made="vms")


@router.get("", response_model=list[VmAnswer])
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, only: VmFilterOf,
    tenant: TenantFilter = None,
) -> Response:  # fmt: skip
    """List VMs. By tenant and name."""
    watching = watches_pool(caller)
    check_may_name_place(caller, only.host)
    sort = paging.sort or "tenant"
    member = paging.sort_name(_SORTED_BY if watching else _SORTED_BY_TENANTS) if paging.sort else sort
    of_store: VmFilter = {**only.of_store, "tenants": caller.visible(tenant)}
    if only.is_of_store:
        by = () if member == "tenant" else (member,)
        after = paging.after(2 + len(by))
        key = None if after is None else (_value_of(member, after[0]), after[-2], after[-1])
        listed, total = services.vms.page(sort, key, paging.limit + 1, **of_store)
        picked = list(filter(only.picks, listed))
        page = paging.page(picked, lambda vm: (*(_text_of(name, vm) for name in by), *_key(vm)), lambda: total)
    else:
        picked = list(filter(only.picks, services.vms.page(**of_store)[0]))
        page = paging.arranged(picked, _key, _SORTED_BY if watching else _SORTED_BY_TENANTS)
    if not page and paging.after(None) is None:
        _check_named(only, services, caller)
    unseen, stops = services.vms.unseen(), services.maintenances.planned()
    faults, floating = services.findings.gpu_faults(), services.floating_addresses.by_vm()
    return paging.answer(
        vm_json(
            vm, unseen.get(vm.host), stops.of(vm), faults.get(vm.id), floating.get(vm.id, ()), watching=watching
        )
        for vm in page
    )  # fmt: skip


_SORTED_BY_TENANTS: Final[Mapping[str, Callable[[Vm], object]]] = {
    "name": lambda vm: vm.spec.name,
    "tenant": lambda vm: vm.spec.tenant,
    "state": lambda vm: vm.state,
    "profile": lambda vm: vm.spec.profile.casefold(),
    "vcpus": lambda vm: vm.spec.vcpus,
    "memory_mib": lambda vm: vm.spec.memory_mib,
    "lease_end": lambda vm: vm.lease_end,
    "created_at": lambda vm: vm.created_at,
}
_SORTED_BY: Final[Mapping[str, Callable[[Vm], object]]] = {**_SORTED_BY_TENANTS, "host": lambda vm: vm.host}
"""A tenant would learn by the order who is beside whom."""
_NUMBERS: Final[Mapping[str, Callable[[str], object]]] = {
    "vcpus": sequence_of, "memory_mib": sequence_of, "lease_end": moment_of, "created_at": moment_of,
}  # fmt: skip
"""Of a cursor."""


def _key(vm: Vm) -> tuple[str, str]:
    return vm.spec.tenant, vm.spec.name


def _text_of(member: str, vm: Vm) -> str:
    value = _SORTED_BY[member](vm)
    return "" if value is None else str(value)


def _value_of(member: str, text: str) -> object:
    """:raises InvalidInput: ``request.cursor``"""
    if member == "lease_end" and not text:
        return None
    return _NUMBERS[member](text) if member in _NUMBERS else text


def _check_named(only: PickedVms, services: Services, caller: Caller) -> None:
    """Nothing was found: because nothing is there, or because no such thing exists.

    :raises NotFound: ``host.unknown``, ``profile.unknown``
    """
    if only.host is not None:
        services.hosts.get(only.host)
    if only.profile is not None:
        services.profiles.get(only.profile, caller.visible(None))


@router.get("/{name}")
def get(name: VmInPath, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT) -> VmAnswer:
    """Get a VM."""
    return _answer(services.vms.get(tenant, name), services, caller)


def _answer(vm: Vm, services: Services, caller: Caller) -> VmAnswer:
    stop, fault = services.maintenances.planned().of(vm), services.findings.gpu_faults().get(vm.id)
    floating = services.floating_addresses.by_vm(vm.id).get(vm.id, ())
    return VmAnswer.of(vm, services.vms.unseen(), stop, fault, floating, watching=watches_pool(caller))


@router.patch("/{name}")
def change(
    name: VmInPath, body: ChangeVmBody, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> VmAnswer:
    """Change a VM. Set labels and whether it is protected; what is not named stays."""
    return _answer(services.vms.change(tenant, name, body.to_request()), services, caller)


@router.delete("/{name}", status_code=202)
def delete(
    response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT,
    gpu_was_bad: GpuWasBad = None,
) -> StartedAnswer:  # fmt: skip
    """Delete a VM. A create that still runs is cancelled first."""
    return started(response, services.vms.delete(tenant, name, gpu_was_bad))


@router.post("/{name}/start", status_code=202)
def start(response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> StartedAnswer:
    """Start a VM. Its device is made again first."""
    return started(response, services.vms.start(tenant, name))


@router.post("/{name}/stop", status_code=202)
def stop(
    response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT, force: Force = False
) -> StartedAnswer:
    """Stop a VM. Shut the VM down and remove its device; the claim stays."""
    return started(response, services.vms.stop(tenant, name, force=force))


@router.post("/{name}/restart", status_code=202)
def restart(
    response: Response, name: VmInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT, force: Force = False
) -> StartedAnswer:
    """Restart a VM. Shut the VM down and start it again in its place, with its device made anew."""
    return started(response, services.vms.restart(tenant, name, force=force))


@router.post("/{name}/rename", status_code=202)
def rename(
    response: Response, name: VmInPath, body: RenameVmBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Rename a VM. Give a stopped VM another name. Its guest keeps the host name that it has."""
    return started(response, services.vms.rename(tenant, name, body.name))


@router.post("/{name}/move", status_code=202)
def move(
    response: Response, name: VmInPath, body: MoveVmBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Move a VM. It goes to another host with its disk; one that runs goes while it runs, where that is legal."""
    return started(response, services.moving.move(body.to_request(name, tenant)))


@router.post("/{name}/move/plan")
def plan_move(
    name: VmInPath, body: MoveVmBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> MovePlanAnswer:
    """Plan a VM's move. What move would do; nothing is stored."""
    return MovePlanAnswer.copied(services.moving.plan(body.to_request(name, tenant)))


@router.post("/{name}/resize", status_code=202)
def resize(
    response: Response, name: VmInPath, body: ResizeVmBody, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT
) -> StartedAnswer:
    """Resize a VM. It gets another profile, vCPUs and memory, on its host where that fits, else on another one."""
    return started(response, services.resizing.resize(body.to_request(name, tenant)))


@router.post("/{name}/resize/plan")
def plan_resize(
    name: VmInPath, body: ResizeVmBody, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> ResizePlanAnswer:
    """Plan a VM's resize. What resize would do; nothing is stored."""
    return ResizePlanAnswer.of(services.resizing.plan(body.to_request(name, tenant)), watching=watches_pool(caller))


@router.post("/{name}/maintenance")
def choose_maintenance(
    name: VmInPath,
    body: ChooseMaintenanceBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> VmAnswer:
    """Choose when a VM has its maintenance. From when on it may be stopped, whatever the tenant's policy says."""
    at = None if body.at is None else parse_moment(body.at, field="at")
    return _answer(services.maintenances.choose(tenant, name, at), services, caller)


@router.post("/{name}/extend")
def extend(
    name: VmInPath, body: ExtendLeaseBody, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> VmAnswer:
    """Extend a VM's lease within what the tenant's policy allows."""
    return _answer(services.vms.extend(tenant, name, body.to_request()), services, caller)


@dataclass(frozen=True)
class _MoveFilter:
    host: str | None
    legal: MoveKind | None

    def picks(self, moves: HostMoves) -> bool:
        return self.legal is None or moves.may(self.legal)


async def _move_filter(
    host: Annotated[str | None, Query(max_length=MAX_NAME, description="Only to this host")] = None,
    legal: Annotated[MoveKind | None, Query(description="Only hosts that it may move to in this way")] = None,
) -> _MoveFilter:
    return _MoveFilter(host, legal)


@router.get("/{name}/moves")
def moves(
    name: VmInPath, services: ServicesOf, caller: CallerOf, paging: PagingOf,
    only: Annotated[_MoveFilter, Depends(_move_filter)], tenant: TenantOf = DEFAULT_TENANT,
) -> MovesAnswer:  # fmt: skip
    """Get where a VM may move. Live, suspended, hibernated and cold, towards each host, and what keeps it from it.
    For a tenant, what of the VM itself rules it out.

    :raises NotFound: ``host.unknown``
    """
    check_may_name_place(caller, only.host)
    own, after = services.moves.own(tenant, name), paging.after(1)
    if not watches_pool(caller):
        return MovesAnswer.of(own, None)
    if only.host is not None:
        return MovesAnswer.of(own, filter(only.picks, [services.moves.to_host(tenant, name, only.host)]))
    behind = None if after is None else after[0]
    hosts = services.moves.of_vm(tenant, name, after=behind, most=paging.limit + 1, legal=only.legal)
    total = services.moves.how_many if only.legal is None else None
    return MovesAnswer.of(own, paging.page(list(hosts), lambda of_host: (of_host.host,), total))


# Websockets are routes/guest_streams.py; these are so that the description of the API can name them.
@router.get("/{name}/console", status_code=426, response_model=None, responses=STREAM)
async def open_console(name: VmInPath, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Open a VM's serial console over a websocket."""
    raise _no_websocket()


@router.get("/{name}/display", status_code=426, response_model=None, responses=STREAM)
async def open_display(name: VmInPath, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Open a VM's graphical console over a websocket. It carries RFB, as viewers of VNC speak it; no password."""
    raise _no_websocket()


@router.get("/{name}/console/log")
async def console_log(
    name: VmInPath, services: ServicesOf, most: LogBytes = MAX_LOG_BYTES, tenant: TenantOf = DEFAULT_TENANT
) -> ConsoleLogAnswer:
    """Get a VM's console log. The last of what its serial console wrote; also of a VM that is stopped."""
    with stream_place(tenant):  # its host may hang
        log = await to_thread.run_sync(services.guest_access.console_log, tenant, name, most, limiter=OPENING)
    return ConsoleLogAnswer.of(log)


@router.get("/{name}/console-sessions/{kind}", status_code=426, response_model=None, responses=STREAM)
async def open_console_session(name: VmInPath, kind: KindInPath, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Open a console with a ticket over a websocket. Binary messages are the console's; text is JSON.

    The server tells who is there; ``{"take_over": true}`` takes the keyboard."""
    raise _no_websocket()


@router.get("/{name}/tcp/{port}", status_code=426, response_model=None, responses=STREAM)
async def open_tcp(name: VmInPath, port: Port, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Open a TCP port of a VM's guest. Like 22 for SSH; from its host and over a websocket."""
    raise _no_websocket()


def _no_websocket() -> InvalidInput:
    return InvalidInput(
        "request.no_websocket",
        "this is a stream of bytes, and the request asks for no websocket",
        hint="'vgpuctl console NAME', 'vgpuctl vnc NAME', 'vgpuctl ssh NAME' open it, in programs a library",
    )
