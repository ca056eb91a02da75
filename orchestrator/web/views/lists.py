# SPDX-License-Identifier: Apache-2.0
"""Lists: each is a path of the API, its filters and its columns; what can be done to their rows is in list_acts.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, ClassVar, Final, get_args

from starlette.requests import Request
from starlette.responses import Response

from orchestrator.core.drivers.check import Verdict
from orchestrator.core.errors import NotFound
from orchestrator.core.offerings.offering import OfferingKind
from orchestrator.core.security_groups import SecurityRule
from orchestrator.web.api_calls import ApiCalls, Problem, Refused, path_of
from orchestrator.web.callers import Reader
from orchestrator.web.login import Page
from orchestrator.web.rendering import address, mib, moment, size, words
from orchestrator.web.views.acts import RefusedAct, Shown, carry_out, new_token, render_acts
from orchestrator.web.views.list_acts import LIST_ACTS, ListAct
from orchestrator.web.views.paging import list_page

Row = Mapping[str, Any]
ROWS_ON_A_PAGE: Final = 100
_MEMBERS: Final = "/v1/tenants/{tenant}/members"


@dataclass(frozen=True)
class ListColumn:
    """``text``: what stands in a row; ``link``: an address that it leads to, None where it leads nowhere; ``member``:
    by which the API sorts; None: it does not."""

    heading: str
    text: Callable[[Row], str]
    link: Callable[[Row], str | None] = lambda _: None
    member: str | None = None


@dataclass(frozen=True)
class ListOf:
    """``route``: as api/permissions.py names it; ``filters``: parameters that the page has fields for; ``member``: of
    the answer that is the list; ``empty``: said where there is nothing, with the page's acts and the ``command`` that
    make the first one; ``fixed``: parameters that are the same for everybody; ``labels``: of filters whose names do
    not say what is typed there; ``choices``: of those that are chosen; ``of_one_tenant``: who belongs to several
    is to name one."""

    title: str
    route: str
    columns: tuple[ListColumn, ...]
    empty: str
    about: str = ""
    filters: tuple[str, ...] = ()
    member: str | None = None
    paged: bool = True
    fixed: Mapping[str, str] = field_of(default_factory=dict)
    command: str = ""
    of_one_tenant: bool = False
    labels: ClassVar[Mapping[str, str]] = {
        "selector": "Labels, like team=vision",
        "since": "Since, like 2026-12-01T10:00Z",
        "until": "Until, like 2026-12-01T12:00Z",
    }
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"refused": ("true",), "kind": get_args(OfferingKind)}

    @property
    def path(self) -> str:
        return self.route.removeprefix("GET ")


def field(heading: str, name: str) -> ListColumn:
    """A member as it is."""
    return ListColumn(heading, lambda row: _text(row[name]), member=name)


def _unsorted(heading: str, name: str) -> ListColumn:
    """A member that the API does not sort by."""
    return replace(field(heading, name), member=None)


def _text(value: object) -> str:
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in sorted(value.items()))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _moment(heading: str, name: str) -> ListColumn:
    return ListColumn(heading, lambda row: moment(row[name]), member=name)


def _owner(row: Row) -> str:
    return row["tenant"] or "the site"


def _fits(row: Row) -> str:
    reason = row.get("reason")
    return "" if reason is None else f"{reason['message']} ({reason['code']})"


_LABELS: Final = (field("Labels", "labels"), field("About", "description"))

LISTS: Final = {
    "capacity": ListOf(
        "Capacity",
        "GET /v1/capacity",
        (
            ListColumn(
                "Profile",
                lambda row: str(row["profile"]),
                lambda row: address("vms", "new", profile=row["profile"], tenant=row["tenant"]),
                "profile",
            ),
            field("Fits now", "fits_now"),
            ListColumn("Why none", _fits),
        ),
        "Nothing is offered before there is a host",
        "How many more VMs of one profile fit on the fleet as it is; each row is counted alone.",
        ("tenant",),
        "rows",
        paged=False,
        command="vgpuctl host add NAME --address A",
        of_one_tenant=True,
    ),
    "profiles": ListOf(
        "Profiles",
        "GET /v1/profiles",
        (
            ListColumn(
                "Name", lambda row: str(row["name"]), lambda row: address("vms", "new", profile=row["name"]), "name"
            ),
            ListColumn("Kind", lambda row: words(row["kind"]), member="kind"),
            field("vCPUs", "vcpus"),
            ListColumn("Memory", lambda row: mib(row["memory_mib"]), member="memory_mib"),
            ListColumn("Disk", lambda row: size(row["disk_bytes"]), member="disk_bytes"),
            ListColumn(
                "GPU memory",
                lambda row: mib(row["framebuffer_mib"]) if row["framebuffer_mib"] else "all",
                member="framebuffer_mib",
            ),
            field("Free", "free"),
            field("About", "description"),
        ),
        "No host offers anything yet",
        "What a VM can be made of here. A name leads to the form for a VM of it.",
        ("kind", "model"),
        fixed={"available": "true"},
        command="vgpuctl host add NAME --address A",
    ),
    "images": ListOf(
        "Images",
        "GET /v1/images",
        (
            field("Name", "name"),
            ListColumn("Of", _owner, member="tenant"),
            field("Format", "format"),
            ListColumn("File", lambda row: size(row["size_bytes"]), member="size_bytes"),
            ListColumn("Disk", lambda row: size(row["virtual_size_bytes"]), member="virtual_size_bytes"),
            field("Guest driver", "guest_driver"),
            *_LABELS,
            _moment("Added", "created_at"),
        ),
        "There is no image",
        filters=("tenant", "selector"),
        command="vgpuctl image add NAME FILE",
    ),
    "networks": ListOf(
        "Networks",
        "GET /v1/networks",
        (
            field("Name", "name"),
            ListColumn("Of", _owner, member="tenant"),
            field("Subnet", "subnet"),
            field("Bridge", "bridge"),
            field("VLAN", "vlan"),
            field("Shared", "shared"),
            *_LABELS,
        ),
        "There is no network",
        filters=("tenant", "selector"),
        command="vgpuctl network create NAME",
    ),
    "security-groups": ListOf(
        "Security groups",
        "GET /v1/security-groups",
        (
            field("Name", "name"),
            ListColumn("Of", _owner, member="tenant"),
            ListColumn("Rules", lambda row: "; ".join(str(SecurityRule(**rule)) for rule in row["rules"]) or "none"),
            *_LABELS,
        ),
        "There is no security group",
        "What may pass to and from network cards of VMs on networks over all hosts. Cards without any are in the "
        "one called default.",
        filters=("tenant", "selector"),
        command="vgpuctl security-group create NAME",
    ),
    "volumes": ListOf(
        "Volumes",
        "GET /v1/volumes",
        (
            field("Tenant", "tenant"),
            field("Name", "name"),
            ListColumn("Size", lambda row: size(row["size_bytes"]), member="size_bytes"),
            field("State", "state"),
            ListColumn("VM", lambda row: row["vm"] or ", ".join(row["read_by"]), member="vm"),
            field("Encryption", "encryption"),
            *_LABELS,
        ),
        "There is no data volume",
        filters=("tenant", "selector"),
        command="vgpuctl volume create NAME --size 20GiB",
    ),
    "backups": ListOf(
        "Backups",
        "GET /v1/backups",
        (
            ListColumn("Taken", lambda row: moment(row["created_at"])),
            _unsorted("Tenant", "tenant"),
            _unsorted("VM", "vm_name"),
            ListColumn("Of one that", lambda row: row["taken_of"] or "is being copied"),
            ListColumn("Disk", lambda row: size(row["size_bytes"])),
            ListColumn("Volumes", lambda row: ", ".join(its["name"] for its in row["volumes"] if not its["left_out"])),
            ListColumn("Added", lambda row: "–" if row["added_bytes"] is None else size(row["added_bytes"])),
            ListColumn("Boot", lambda row: row["boot_outcome"] or "–"),
            _unsorted("Target", "target"),
        ),
        "There is no backup",
        "Of VMs' disks and volumes, oldest first, also of VMs that are gone. Put back they replace a stopped VM's.",
        ("tenant",),
        command="vgpuctl backup run NAME",
    ),
    "tenants": ListOf(
        "Tenants",
        "GET /v1/tenants",
        (
            ListColumn("Name", lambda row: str(row["name"]), lambda row: address("tenants", row["name"]), "name"),
            *_LABELS,
            _moment("Made", "created_at"),
        ),
        "There is no tenant",
        filters=("selector",),
        command="vgpuctl tenant create NAME",
    ),
    "bundles": ListOf(
        "Driver bundles",
        "GET /v1/driver-bundles",
        (
            ListColumn("Kind", lambda row: words(row["kind"]), member="kind"),
            field("Version", "version"),
            field("Package", "package"),
            field("Format", "format"),
            ListColumn("Size", lambda row: size(row["size_bytes"]), member="size_bytes"),
            field("Signed by", "key_id"),
            _moment("Added", "created_at"),
        ),
        "There is no driver bundle",
        command="vgpuctl driver bundle add FILE --key KEY",
    ),
    "audit": ListOf(
        "Audit",
        "GET /v1/audit",
        (
            field("No.", "sequence"),
            ListColumn("When", lambda row: moment(row["at"])),
            *(_unsorted(*names) for names in (("Who", "actor"), ("What", "action"), ("About", "subject"))),
            *(_unsorted(*names) for names in (("Outcome", "outcome"), ("From", "source"), ("By", "interface"))),
        ),
        "Nothing was recorded yet",
        "Who did or wanted what, newest first; refusals too.",
        ("actor", "subject", "since", "until", "refused"),
    ),
}
"""By the last word of the page's address."""


async def plain_list(request: Request) -> Response:
    """``GET /web/{list}``"""
    return await _plain_list(request, None)


async def _plain_list(request: Request, refused: RefusedAct | None) -> Response:
    name = request.url.path.split("/")[2]
    shown = LISTS[name]
    limit = ROWS_ON_A_PAGE if shown.paged else None
    reader: Reader = request.state.reader
    chooses = shown.of_one_tenant and len(reader.tenants or ()) > 1
    usual = {**shown.fixed, **({"tenant": reader.usual_tenant} if chooses else {})}
    page = await list_page(request, shown.path, shown.filters, limit=limit, member=shown.member, usual=usual)
    rows = [{**row, "tenant": row["name"]} for row in page.rows] if name == "tenants" else page.rows
    if shown.of_one_tenant:
        rows = [{**row, "tenant": page.filters["tenant"]} for row in rows]
    query = f"?{request.url.query}" if request.url.query else ""
    acts = LIST_ACTS.get(name, ())
    values = {
        "title": shown.title, "list": shown, "page": page, "rows": rows, "acts": acts, "about": {}, "query": query,
        "base": address(name, "act"), "unplaced": unplaced(refused, (acts, [*rows, {}])),
    }  # fmt: skip
    return render_acts(request, "list.html", values, refused, page.status)


def unplaced(refused: RefusedAct | None, *forms: tuple[Iterable[ListAct], Iterable[Row]]) -> Problem | None:
    """The refusal of what the page has no form for any more: its thing is gone."""
    if refused is None or any(refused.act == act.id_of(row) for acts, rows in forms for act in acts for row in rows):
        return None
    return refused.problem


async def act(request: Request) -> Response:
    """``POST /web/{list}/act/{act}``"""
    name = request.url.path.split("/")[2]
    return await carry_out_in_list(request, name, request.path_params["act"], _plain_list, address(name))


async def carry_out_in_list(request: Request, name: str, act_name: str, shown: Shown, target: str) -> Response:
    """An act of :data:`LIST_ACTS`. :raises Refused: ``request.no_such_path``"""
    wanted = next((act for act in LIST_ACTS.get(name, ()) if act.name == act_name), None)
    if wanted is None:
        raise Refused.of(NotFound("request.no_such_path", "nothing here can do that", hint="take a button of the page"))
    return await carry_out(request, wanted.id_of, wanted.carry_out, shown, target)


async def tenant(request: Request) -> Response:
    """``GET /web/tenants/{tenant}``: its quota, its policy, what it has, who is in it"""
    return await _tenant(request, None)


async def _tenant(request: Request, refused: RefusedAct | None) -> Response:
    api: ApiCalls = request.state.api
    name = request.path_params["tenant"]
    may = request.state.reader.may
    members = await api.get(path_of("tenants", name, "members")) if may("GET " + _MEMBERS, name) else None
    tokens = await api.get("/v1/tokens", tenant=name) if may("GET /v1/tokens", name) else None
    values = {
        "title": f"Tenant {name}",
        "tenant": await api.get(path_of("tenants", name)),
        "quota": await api.get(path_of("tenants", name, "quota")),
        "policy": await api.get(path_of("tenants", name, "policy")),
        "status": await api.get("/v1/status", tenant=name),
        "members": members,
        "tokens": None if tokens is None else [{**token, "token_id": token["id"]} for token in tokens],
        "acts": LIST_ACTS,
        "about": {"tenant": name},
    }
    listed = [*(members or ()), *(values["tokens"] or ()), values["about"]]
    values["unplaced"] = unplaced(refused, *((LIST_ACTS[of], listed) for of in ("quota", "members", "tokens")))
    return render_acts(request, "tenant.html", values, refused)


async def act_of_tenant(request: Request) -> Response:
    """``POST /web/tenants/{tenant}/{list}/{act}``: of its quota, members, tokens"""
    of, name = request.path_params["list"], request.path_params["tenant"]
    return await carry_out_in_list(request, of, request.path_params["act"], _tenant, address("tenants", name))


async def drivers(request: Request) -> Response:
    """``GET /web/drivers``: hosts and VMs against the lock, and maintenance that is not over, else what was last"""
    return await _drivers(request, None)


async def _drivers(request: Request, refused: RefusedAct | None) -> Response:
    api: ApiCalls = request.state.api
    page = await list_page(request, "/v1/driver-check", ("host", "verdict"), limit=ROWS_ON_A_PAGE, member="rows")
    shown = await _maintenances(api)
    values = {
        "title": "Drivers",
        "page": page,
        "verdicts": get_args(Verdict),
        "maintenances": shown,
        "acts": LIST_ACTS["maintenance"],
    }
    values["unplaced"] = unplaced(refused, (LIST_ACTS["maintenance"], shown))
    return render_acts(request, "drivers.html", values, refused, page.status)


async def act_of_maintenance(request: Request) -> Response:
    """``POST /web/drivers/{act}``: pause, resume, cancel"""
    return await carry_out_in_list(request, "maintenance", request.path_params["act"], _drivers, address("drivers"))


async def _maintenances(api: ApiCalls) -> list[Any]:
    """Those that are not over, the newest first; the newest if all are."""
    shown = (await api.get("/v1/status"))["maintenances"] or (await api.get("/v1/maintenances"))[:1]
    return [await api.get(path_of("maintenances", its["id"])) for its in shown]


ROUTES: Final[dict[tuple[str, str], Page]] = {
    **{("GET", f"/web/{name}"): plain_list for name in LISTS},
    **{("POST", f"/web/{name}/act/{{act}}"): act for name in LISTS if name in LIST_ACTS},
    ("GET", "/web/tenants/{tenant}"): tenant,
    ("POST", "/web/tenants/{tenant}/{list}/{act}"): act_of_tenant,
    ("GET", "/web/drivers"): drivers,
    ("POST", "/web/drivers/{act}"): act_of_maintenance,
    ("GET", "/web/new-token"): new_token,
}
