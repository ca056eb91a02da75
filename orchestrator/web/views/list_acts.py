# SPDX-License-Identifier: Apache-2.0
"""What can be done to the things of lists: a route of the API, what is typed for it, and where it is offered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.tenancy.access import ROLES_IN_A_TENANT
from orchestrator.core.tenancy.tenant import MAX_TOKEN_LIFETIME_S
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.vm import disk_bytes
from orchestrator.web.api_calls import ApiCalls, Refused, path_of
from orchestrator.web.forms import whole_number
from orchestrator.web.views.acts import Form, confirmed, unchanged

Row = Mapping[str, Any]
_IN_PATH: Final = re.compile(r"\{(\w+)\}")


def _plain(text: str) -> Any:
    return text


@dataclass(frozen=True)
class Typed:
    """A field of a form. ``value``: of the text, for the API's body; an empty one is left out. ``choices``: none: any
    text. A tenant's begins with the reader's own."""

    name: str
    label: str
    value: Callable[[str], Any] = _plain
    choices: tuple[str, ...] = ()
    required: bool = True


@dataclass(frozen=True)
class ListAct:
    """``name``: the last word of its address. ``route``: as api/permissions.py has it; what is in braces and ``query``
    is of the row. ``shown``: for which rows; of a list itself where ``of_list``. ``typed``: of the row, which the
    person types before; ``same``: what of the row must not have changed since the form was shown."""

    name: str
    text: str
    route: str
    fields: tuple[Typed, ...] = ()
    query: tuple[str, ...] = ()
    of_list: bool = False
    shown: Callable[[Row], bool] = lambda _: True
    typed: str | None = None
    same: str | None = None
    body: Callable[[dict[str, Any]], Any] = field(default=lambda given: given or None)

    @property
    def of_row(self) -> tuple[str, ...]:
        """Members of the row that its form carries along; of a list's own: of what the page is about."""
        named = [*_IN_PATH.findall(self.route), *self.query, *filter(None, [self.same, self.typed])]
        return tuple(name for name in dict.fromkeys(named) if name not in {typed.name for typed in self.fields})

    def id_of(self, row: Row) -> str:
        """Tells its form on a page from all others; ``row``: the row, or what the form has sent."""
        return " ".join([self.name, *(str(row.get(name)) for name in self.of_row if name != self.same)])

    async def carry_out(self, api: ApiCalls, form: Form) -> Any:
        """:raises Refused:"""
        if self.typed is not None:
            confirmed(form, form.get(self.typed, ""))
        method, _, pattern = self.route.partition(" ")
        path = path_of(*(form.get(part.strip("{}"), "") if "{" in part else part for part in pattern.split("/")[2:]))
        query = {name: form.get(name) for name in self.query}
        if self.same is not None:
            await unchanged(api, form, self.same, path, **query)
        try:
            given = {typed.name: typed.value(form[typed.name]) for typed in self.fields if form.get(typed.name)}
        except VgpuctlError as error:
            raise Refused.of(error) from error
        return await api.change(method, path, self.body(given), key=form.get("key"), **query)


def _lifetime(text: str) -> int:
    return int(parse_duration(text, field="lifetime", at_most_s=MAX_TOKEN_LIFETIME_S))


def _whole(name: str) -> Callable[[str], int | None]:
    return lambda text: whole_number({name: text}, name)


def _of_site(row: Row) -> bool:
    return row["tenant"] is None


def _of_tenant(row: Row) -> bool:
    return row["tenant"] is not None


def _is_taken(row: Row) -> bool:
    return row["taken_of"] is not None


def _in(*states: str) -> Callable[[Row], bool]:
    return lambda row: row["state"] in states


_ROLES: Final = tuple(reversed(ROLES_IN_A_TENANT))
"""The least first: that one is given by a form in which nobody chooses."""
_NAME: Final = Typed("name", "Name")
_TENANT: Final = Typed("tenant", "Tenant")
_VM: Final = Typed("vm", "VM")
_READ_ONLY: Final = "read-only"
_AND_VOLUMES: Final = "its disk and data volumes"
_OF_VOLUMES: Final = Typed(
    "volumes", "Of", lambda text: text == _AND_VOLUMES, (_AND_VOLUMES, "its disk"), required=False
)


def _deletion(name: str, route: str, text: str = "Delete", **more: Any) -> ListAct:
    return ListAct(name, text, route, typed=more.pop("typed", "name"), **more)


LIST_ACTS: Final[dict[str, tuple[ListAct, ...]]] = {
    "volumes": (
        ListAct(
            "new",
            "New volume",
            "POST /v1/volumes",
            (_NAME, _TENANT, Typed("size_bytes", "Size, like 20GiB", disk_bytes)),
            of_list=True,
        ),
        ListAct(
            "attach",
            "Attach",
            "POST /v1/volumes/{name}/attach",
            (_VM, Typed("read_only", "Access", lambda text: text == _READ_ONLY, ("read and write", _READ_ONLY))),
            ("tenant",),
            shown=lambda row: row["vm"] is None and row["state"] != "lost",
        ),
        ListAct(
            "detach",
            "Detach",
            "POST /v1/volumes/{name}/detach",
            (_VM,),
            ("tenant",),
            shown=lambda row: row["vm"] is not None or bool(row["read_by"]),
        ),
        ListAct(
            "resize",
            "Make larger",
            "POST /v1/volumes/{name}/resize",
            (Typed("size_bytes", "Size, like 40GiB", disk_bytes),),
            ("tenant",),
            shown=lambda row: row["state"] in {"new", "ready"},
        ),
        _deletion(
            "delete", "DELETE /v1/volumes/{name}", query=("tenant",), same="id", shown=lambda row: row["vm"] is None
        ),
    ),
    "disk": (
        ListAct(
            "take",
            "Take a snapshot of its disk",
            "POST /v1/vms/{name}/snapshots",
            (
                Typed("snapshot", "Name of the snapshot"),
                Typed("volumes", "Of", lambda text: text == _AND_VOLUMES, ("its disk", _AND_VOLUMES)),
            ),
            ("tenant",),
            of_list=True,
            body=lambda given: {"name": given["snapshot"], "volumes": bool(given.get("volumes"))},
        ),
        ListAct(
            "grow",
            "Make its disk larger",
            "POST /v1/vms/{name}/disk",
            (Typed("size_bytes", "Size, like 80GiB", disk_bytes),),
            ("tenant",),
            of_list=True,
        ),
        _deletion(
            "restore",
            "POST /v1/vms/{name}/snapshots/{snapshot}/restore",
            "Put in the disk's place",
            query=("tenant",),
            typed="snapshot",
            shown=_is_taken,
        ),
        _deletion("delete", "DELETE /v1/vms/{name}/snapshots/{snapshot}", query=("tenant",), typed="snapshot"),
    ),
    "backups": (
        ListAct(
            "new",
            "New backup",
            "POST /v1/backups",
            (_VM, _TENANT, Typed("target", "Target; empty: the only one", required=False), _OF_VOLUMES),
            of_list=True,
        ),
        ListAct(
            "restore",
            "Put back into a stopped VM",
            "POST /v1/backups/{id}/restore",
            (_VM, _OF_VOLUMES),
            ("tenant",),
            shown=_is_taken,
        ),
        ListAct(
            "volume",
            "Make a data volume of one in it",
            "POST /v1/backups/{id}/volume",
            (Typed("name", "Name of the new one"), Typed("volume", "Which one; empty: the only one", required=False)),
            ("tenant",),
            shown=lambda row: _is_taken(row) and any(not volume["left_out"] for volume in row["volumes"]),
        ),
        ListAct("verify", "Verify", "POST /v1/backups/{id}/verify", query=("tenant",), shown=_is_taken),
        ListAct(
            "boot",
            "Boot a copy",
            "POST /v1/backups/{id}/boot",
            (Typed("profile", "Profile; empty: its VM's", required=False),),
            ("tenant",),
            shown=_is_taken,
        ),
        _deletion("delete", "DELETE /v1/backups/{id}", query=("tenant",), typed="vm_name"),
    ),
    "networks": (
        ListAct(
            "new",
            "New network of a tenant",
            "POST /v1/tenants/{tenant}/networks",
            (_NAME, _TENANT, Typed("subnet", "Subnet, like 10.88.1.0/24", required=False)),
            of_list=True,
            body=lambda given: {name: value for name, value in given.items() if name != "tenant"},
        ),
        ListAct(
            "add",
            "New network of the site",
            "POST /v1/networks",
            (
                _NAME,
                Typed("subnet", "Subnet, where there is no bridge", required=False),
                Typed("bridge", "Bridge of the hosts", required=False),
                Typed("vlan", "VLAN", _whole("vlan"), required=False),
            ),
            of_list=True,
        ),
        ListAct(
            "share", "Share", "POST /v1/networks/{name}/share", shown=lambda row: _of_site(row) and not row["shared"]
        ),
        ListAct(
            "unshare",
            "Unshare",
            "POST /v1/networks/{name}/unshare",
            shown=lambda row: _of_site(row) and bool(row["shared"]),
        ),
        _deletion("remove", "DELETE /v1/networks/{name}", shown=_of_site),
        _deletion("delete", "DELETE /v1/tenants/{tenant}/networks/{name}", shown=_of_tenant),
    ),
    "images": (
        ListAct(
            "add",
            "New image of the site",
            "POST /v1/images",
            (
                _NAME,
                Typed("source", "URL, or a path on the server's machine"),
                Typed("sha256", "SHA-256", required=False),
            ),
            of_list=True,
        ),
        _deletion("remove", "DELETE /v1/images/{name}", shown=_of_site, same="sha256"),
        _deletion("delete", "DELETE /v1/tenants/{tenant}/images/{name}", shown=_of_tenant, same="sha256"),
    ),
    "tenants": (
        ListAct("new", "New tenant", "POST /v1/tenants", (_NAME,), of_list=True),
        ListAct(
            "describe",
            "Describe",
            "PATCH /v1/tenants/{tenant}",
            (Typed("description", "About"),),
        ),
        _deletion("delete", "DELETE /v1/tenants/{tenant}", typed="tenant", same="created_at"),
    ),
    "profiles": (_deletion("delete", "DELETE /v1/offerings/{name}", shown=lambda row: row["kind"] == "offering"),),
    "bundles": (_deletion("delete", "DELETE /v1/driver-bundles/{sha256}", typed="version"),),
    "quota": (
        ListAct(
            "set",
            "Set a limit",
            "PATCH /v1/tenants/{tenant}/quota",
            (
                Typed("resource", "Resource, like vms, vcpus or devices"),
                Typed("limit", "Limit; empty: none", _whole("limit"), required=False),
            ),
            of_list=True,
            body=lambda given: {"limits": {given["resource"]: given.get("limit")}},
        ),
    ),
    "members": (
        ListAct(
            "put",
            "Give a role",
            "PUT /v1/tenants/{tenant}/members",
            (
                Typed("subject", "Whom: uid:1000, oidc:ADDRESS, oidc:@GROUP"),
                Typed("role", "Role", choices=_ROLES),
            ),
            of_list=True,
        ),
        ListAct("remove", "Take the role away", "DELETE /v1/tenants/{tenant}/members", query=("subject",)),
    ),
    "tokens": (
        ListAct(
            "new",
            "New token",
            "POST /v1/tokens",
            (
                Typed("tenant", "Tenant"),
                Typed("role", "Role", choices=_ROLES),
                Typed("name", "What it is for", required=False),
                Typed("lifetime_s", "Lifetime, like 30d; empty: until it is revoked", _lifetime, required=False),
            ),
            of_list=True,
        ),
        _deletion(
            "revoke",
            "DELETE /v1/tokens/{token_id}",
            "Revoke",
            query=("tenant",),
            typed="token_id",
            shown=lambda row: row["revoked_at"] is None,
        ),
    ),
    "maintenance": (
        ListAct("pause", "Pause: begin no further host", "POST /v1/maintenances/{id}/pause", shown=_in("running")),
        ListAct("resume", "Go on", "POST /v1/maintenances/{id}/resume", shown=_in("paused", "halted")),
        ListAct(
            "cancel",
            "Cancel: begin no further host, ever",
            "POST /v1/maintenances/{id}/cancel",
            shown=_in("running", "paused", "halted"),
        ),
    ),
}
"""By the list that they stand at."""
