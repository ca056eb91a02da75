# SPDX-License-Identifier: Apache-2.0
"""VMs: the list, one of them, and what can be done to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.lease import MAX_LEASE_S
from orchestrator.web.api_calls import ApiCalls, Refused, path_of
from orchestrator.web.forms import form_of
from orchestrator.web.live import stream_of
from orchestrator.web.login import Page
from orchestrator.web.rendering import LIVE, READINGS, address, part_of, render
from orchestrator.web.views import readings
from orchestrator.web.views.acts import Form, RefusedAct, carry_out, confirmed, render_acts, unchanged
from orchestrator.web.views.list_acts import LIST_ACTS
from orchestrator.web.views.lists import carry_out_in_list, unplaced
from orchestrator.web.views.paging import list_page

VMS_ON_A_PAGE: Final = 100
LAST_OPERATIONS: Final = 10
TARGETS: Final = 20
"""Hosts on a page of those that a VM may move to."""
_MOVE_FILTERS: Final = ("host", "legal")
_FILTERS: Final = ("tenant", "state", "host", "profile", "selector")
_PLACES: Final = frozenset({"create_vm", "preempt_for_vm", "start_freed_vm"})
"""Operations that give a VM its place."""
_POWER: Final = frozenset({"start", "stop", "restart", "suspend", "resume", "discard-suspended"})


async def vms(request: Request) -> Response:
    """``GET /web/vms``"""
    page = await list_page(request, "/v1/vms", _FILTERS, limit=VMS_ON_A_PAGE)
    values = {"title": "VMs", "page": page, "stream": stream_of("vm", tenant=page.filters["tenant"])}
    return render(request, "vms.html", values, page.status)


async def vm(request: Request) -> Response:
    """``GET /web/vms/{tenant}/{name}``"""
    return await _vm(request, None)


async def _vm(request: Request, refused: RefusedAct | None, *, forecast: Any = None) -> Response:
    api: ApiCalls = request.state.api
    tenant, name = request.path_params["tenant"], request.path_params["name"]
    shown = await api.get(path_of("vms", name), tenant=tenant)
    values = {
        "title": f"VM {tenant}/{name}",
        "own": address("vms", tenant, name),
        "stream": stream_of("vm", "operation", names=[shown["id"], f"{tenant}/{name}"], tenant=tenant),
        "vm": shown,
        "forecast": forecast,
        "whole_gpu": any(device["kind"] == "passthrough" for device in shown["devices"]),
    }
    if (part := part_of(request)) != READINGS:
        query = {"tenant": tenant, "subject": f"{tenant}/{name}", "limit": LAST_OPERATIONS}
        values["operations"] = await api.get("/v1/operations", **query)
        values["placement"] = await _placement_of(api, shown, values["operations"])
    if part not in {LIVE, READINGS}:
        values |= await _moves(request, tenant, name)
        values |= _snapshots(shown, refused)
    if part != LIVE:
        values["readings_now"] = await readings.of_vm(api, tenant, name)
    return render_acts(request, "vm.html", values, refused)


def _snapshots(vm: Mapping[str, Any], refused: RefusedAct | None) -> dict[str, Any]:
    """Of its disk, and what can be done to them and to it."""
    about, acts = {"name": vm["name"], "tenant": vm["tenant"]}, LIST_ACTS["disk"]
    rows = [{**about, "snapshot": its["name"], **its, "name": vm["name"]} for its in vm["snapshots"]]
    of_disk = refused is not None and refused.act.startswith(tuple(f"{act.name} " for act in acts))
    gone = unplaced(refused, (acts, [*rows, about])) if of_disk else None
    return {"snapshots": rows, "acts": acts, "about": about, "unplaced": gone}


async def act_on_disk(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/disk/{act}``"""
    own = address("vms", request.path_params["tenant"], request.path_params["name"])
    return await carry_out_in_list(request, "disk", request.path_params["act"], _vm, own)


async def _moves(request: Request, tenant: str, name: str) -> dict[str, Any]:
    """What keeps the VM from moving, and for who runs the pool a page of hosts: one answer, but where the filter is
    refused."""
    path, filters = path_of("vms", name, "moves"), _MOVE_FILTERS if request.state.reader.watches_pool else ()
    targets = await list_page(request, path, filters, limit=TARGETS, member="hosts", usual={"tenant": tenant})
    moves = targets.data
    if targets.refused is not None:
        with suppress(Refused):  # its offering is not there any more, or the VM itself is not
            moves = await request.state.api.get(path, tenant=tenant, limit=1)
    return {"moves": moves, "targets": None if moves is None or moves["restricted"] else targets}


async def _placement_of(api: ApiCalls, vm: Mapping[str, Any], newest: list[Any]) -> str:
    """What placement said when it got its place; empty: that is not told to the reader, or not kept any more."""
    if vm["host"] is None:
        return ""
    query = {"tenant": vm["tenant"], "subject": f"{vm['tenant']}/{vm['name']}", "kind": "create_vm", "limit": 1}
    placings = [operation for operation in newest if operation["kind"] in _PLACES] or await api.get(
        "/v1/operations", **query
    )
    steps = [step for placing in placings[:1] for step in placing["steps"] if step["title"].startswith("claim ")]
    return str(steps[0]["message"]) if steps else ""


async def power(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/{act}``: start, stop, restart, suspend, resume, discard-suspended"""

    async def change(api: ApiCalls, form: Form) -> Any:
        if act not in _POWER:
            raise Refused.of(InvalidInput("request.method", "a VM has no such act", hint="start, stop or restart it"))
        if act == "discard-suspended":
            confirmed(form, name)
        force = "true" if form.get("force") and act in {"stop", "restart"} else None
        return await api.change("POST", path_of("vms", name, act), key=form.get("key"), tenant=tenant, force=force)

    tenant, name, act = (request.path_params[part] for part in ("tenant", "name", "act"))
    return await carry_out(request, act, change, _vm, address("vms", tenant, name))


async def delete(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/delete``: the VM's name is typed"""

    async def change(api: ApiCalls, form: Form) -> Any:
        confirmed(form, name)
        await unchanged(api, form, "id", path_of("vms", name), tenant=tenant)
        return await api.change("DELETE", path_of("vms", name), key=form.get("key"), tenant=tenant)

    tenant, name = request.path_params["tenant"], request.path_params["name"]
    return await carry_out(request, "delete", change, _vm, address("vms"))


def _moved(form: Form) -> dict[str, object]:
    host = {"host": form["host"]} if form.get("host") else {}
    return {**{act: True for act in ("cold", "force") if form.get(act)}, **host}


async def move(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/move``"""

    async def change(api: ApiCalls, form: Form) -> Any:
        await unchanged(api, form, "id", path_of("vms", name), tenant=tenant)
        return await api.change("POST", path_of("vms", name, "move"), _moved(form), key=form.get("key"), tenant=tenant)

    tenant, name = request.path_params["tenant"], request.path_params["name"]
    return await carry_out(request, "move", change, _vm, address("vms", tenant, name))


async def forecast(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/forecast``: what the move of the same form would do"""
    form, api = await form_of(request), request.state.api
    tenant, name = request.path_params["tenant"], request.path_params["name"]
    try:
        plan = await api.change("POST", path_of("vms", name, "move", "plan"), _moved(form), tenant=tenant)
    except Refused as refused:
        return await _vm(request, RefusedAct("move", refused.problem, form))
    return await _vm(request, None, forecast=plan)


async def choose_maintenance(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/maintenance``: now, or from when on"""

    async def change(api: ApiCalls, form: Form) -> Any:
        if not form.get("now") and not form.get("at"):
            raise Refused.of(InvalidInput("form.empty", "no time was given", hint="like 2026-12-01T22:00Z"))
        body = {"at": None if form.get("now") else form["at"]}
        path = path_of("vms", name, "maintenance")
        return await api.change("POST", path, body, key=form.get("key"), tenant=tenant)

    tenant, name = request.path_params["tenant"], request.path_params["name"]
    return await carry_out(request, "maintenance", change, _vm, address("vms", tenant, name))


async def extend(request: Request) -> Response:
    """``POST /web/vms/{tenant}/{name}/extend``"""

    async def change(api: ApiCalls, form: Form) -> Any:
        body = {"lease_s": lease_of(form.get("lease", ""))}
        return await api.change("POST", path_of("vms", name, "extend"), body, key=form.get("key"), tenant=tenant)

    tenant, name = request.path_params["tenant"], request.path_params["name"]
    return await carry_out(request, "extend", change, _vm, address("vms", tenant, name))


def lease_of(text: str) -> int:
    """``8h`` in seconds. :raises Refused: the command line's own refusal of it"""
    try:
        return int(parse_duration(text, field="lease", at_most_s=MAX_LEASE_S))
    except VgpuctlError as error:
        raise Refused.of(error) from error


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/vms"): vms,
    ("GET", "/web/vms/{tenant}/{name}"): vm,
    ("POST", "/web/vms/{tenant}/{name}/delete"): delete,
    ("POST", "/web/vms/{tenant}/{name}/extend"): extend,
    ("POST", "/web/vms/{tenant}/{name}/move"): move,
    ("POST", "/web/vms/{tenant}/{name}/forecast"): forecast,
    ("POST", "/web/vms/{tenant}/{name}/maintenance"): choose_maintenance,
    ("POST", "/web/vms/{tenant}/{name}/{act}"): power,
    ("POST", "/web/vms/{tenant}/{name}/disk/{act}"): act_on_disk,
}
