# SPDX-License-Identifier: Apache-2.0
"""The form that makes a VM: whether it fits, the command that does the same, and the making itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.network import DEFAULT_NAME
from orchestrator.core.vms.vm import disk_bytes, memory_mib
from orchestrator.web.api_calls import ApiCalls, Problem, Refused
from orchestrator.web.forms import form_of, typed, whole_number
from orchestrator.web.login import Page
from orchestrator.web.rendering import address, render
from orchestrator.web.views.vms import lease_of

_UNNAMED: Final = "new-vm"
"""Stands for the name while it is not typed yet; whether a VM fits does not hang on it."""
EMPTY: Final[Mapping[str, str]] = {
    "tenant": "", "name": "", "profile": "", "image": "", "vcpus": "", "memory": "", "disk": "",
    "network": DEFAULT_NAME, "pool": "", "ssh_keys": "", "lease": "", "priority": "normal",
}  # fmt: skip
_OPTIONS: Final = {
    "tenant": "--tenant", "profile": "--profile", "image": "--image", "vcpus": "--vcpus", "memory": "--memory",
    "disk": "--disk", "network": "--network", "pool": "--pool", "ssh_keys": "--ssh-key", "lease": "--lease",
    "priority": "--priority",
}  # fmt: skip
_USUAL: Final = {"network": DEFAULT_NAME, "priority": "normal"}


async def form_page(request: Request) -> Response:
    """``GET /web/vms/new``; the address may say values, as of the profile."""
    empty = {**EMPTY, "tenant": request.state.reader.usual_tenant}
    given = {name: request.query_params.get(name, usual) for name, usual in empty.items()}
    return await _page(request, given)


async def plan(request: Request) -> Response:
    """``POST /web/vms/new/plan``: whether it fits, and where; nothing is made."""
    form = {**EMPTY, **await form_of(request)}
    try:
        planned = await _asked(request.state.api, "/v1/vms/plan", form, None)
    except Refused as refused:
        return await _page(request, form, refusal=refused.problem, remedies=await _remedies(request, form, refused))
    return await _page(request, form, planned=planned)


async def create(request: Request) -> Response:
    """``POST /web/vms/new``"""
    form = {**EMPTY, **await form_of(request)}
    try:
        started = await _asked(request.state.api, "/v1/vms", form, form.get("key"))
    except Refused as refused:
        remedies = await _remedies(request, form, refused)
        return await _page(request, form, refusal=refused.problem, remedies=remedies, status=refused.status)
    target = address("vms", form["tenant"] or DEFAULT_TENANT, started["name"])
    return RedirectResponse(address("operations", started["operation"]) if started["operation"] else target, 303)


async def _asked(api: ApiCalls, path: str, form: Mapping[str, str], key: str | None) -> Any:
    """:raises Refused:"""
    body = wanted(form)
    return await api.change("POST", path, body if key else {**body, "name": body["name"] or _UNNAMED}, key=key)


async def _remedies(request: Request, form: Mapping[str, str], refused: Refused) -> Any:
    """What would let it in, told to those who watch the pool; None: it is refused for something else than its place."""
    if refused.problem["code"] != "gpu.no_capacity" or not request.state.reader.watches_pool:
        return None
    body = wanted(form)
    question = {
        name: body[name] for name in ("profile", "tenant", "vcpus", "memory_mib", "disk_bytes", "network", "pool")
    }
    return (await request.state.api.get("/v1/explain", **question))["remedies"]


def wanted(form: Mapping[str, str]) -> dict[str, Any]:
    """The API's body. What is left empty is left to the profile. :raises Refused: ``form.invalid``, or as the
    command line refuses a size or a lease"""
    body: dict[str, Any] = {
        "name": form["name"],
        "tenant": form["tenant"] or DEFAULT_TENANT,
        "profile": form["profile"],
        "image": form["image"],
        "network": form["network"] or DEFAULT_NAME,
        "pool": form["pool"] or None,
        "priority": form["priority"] or "normal",
        "vcpus": whole_number(form, "vcpus"),
        "memory_mib": typed(memory_mib, form["memory"]),
        "disk_bytes": typed(disk_bytes, form["disk"]),
        "ssh_keys": [line.strip() for line in form["ssh_keys"].splitlines() if line.strip()],
    }
    return body | ({"lease_s": lease_of(form["lease"])} if form["lease"] else {})


def command_of(form: Mapping[str, str]) -> str:
    """The same as a line for a shell."""
    return shlex.join(["vgpuctl", "create-vm", form["name"] or _UNNAMED, *_options(form)])


def _options(form: Mapping[str, str]) -> Iterator[str]:
    for field, option in _OPTIONS.items():
        for value in form[field].splitlines():
            if value.strip() and value.strip() != _USUAL.get(field):
                yield option
                yield value.strip()


async def _page(
    request: Request,
    form: Mapping[str, str],
    *,
    planned: Any = None,
    refusal: Problem | None = None,
    remedies: Any = None,
    status: int = 200,
) -> Response:
    values = {
        "title": "New VM",
        "form": form,
        **await _choices(request),
        "planned": planned,
        "refusal": refusal,
        "remedies": remedies,
        "command": command_of(form) if form["profile"] else None,
    }
    return render(request, "create.html", values, status)


async def _choices(request: Request) -> dict[str, Any]:
    """What the form's lists offer; nothing for htmx, which asks whether it fits alone."""
    if request.headers.get("hx-request") == "true":
        return dict.fromkeys(("tenants", "profiles", "images", "networks"), ())
    api: ApiCalls = request.state.api
    tenants = request.state.reader.tenants
    if tenants is None:
        tenants = [tenant["name"] for tenant in await api.get("/v1/tenants")]
    profiles = await api.get("/v1/profiles", available="true")
    return {
        "tenants": tenants,
        "profiles": profiles,
        **{name: await api.get(f"/v1/{name}") for name in ("images", "networks")},
    }


ROUTES: Final[dict[tuple[str, str], Page]] = {
    ("GET", "/web/vms/new"): form_page,
    ("POST", "/web/vms/new/plan"): plan,
    ("POST", "/web/vms/new"): create,
}
