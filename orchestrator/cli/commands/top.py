# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl top …``: what hosts, GPUs and VMs do now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.parameters import AllTenants, ListTenant, OfHost, OfModel, Sort, listed_tenant
from orchestrator.cli.readings import GPU_COLUMNS, HOST_COLUMNS, VM_COLUMNS, next_frame_s
from orchestrator.cli.session import CliSession, session_of
from orchestrator.cli.table import Column, Listing, say_cut
from orchestrator.cli.tree import new_group
from orchestrator.cli.watch import View, Watch, list_view, show_view

app = new_group("What hosts, GPUs and VMs do now; nothing is older than 30 s.")

Filter = Annotated[str | None, typer.Option("--filter", metavar="TEXT", help="Only rows with this in one of them.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, max=10_000, help="Only the first so many.")]
MEMBERS: Final = {
    "memory": "memory_used_bytes", "temp": "temperature_celsius", "power": "power_watts", "resident": "memory_bytes",
    "why-not": "silent", "read": "age_s",
}  # fmt: skip
"""Columns that are not called as what they show."""


@dataclass(frozen=True)
class TopRows:
    """What all of them have in common."""

    text: str | None
    sort: str | None
    limit: int | None
    watch: bool

    def of_server(self, **members: str) -> dict[str, Any]:
        """What the server does of it; without a limit rows are sorted here. ``members``: as :data:`MEMBERS`."""
        sort = self._members(MEMBERS | members) if self.limit else None
        return {"text": self.text, "sort": sort, "limit": self.limit}

    def show(
        self,
        session: CliSession,
        read: Callable[[], Sequence[Mapping[str, Any]]],
        columns: Sequence[Column],
        *nouns: str,
        tenant: str | None = None,
    ) -> None:
        """What ``read`` answers, now or again and again. ``nouns``: whose events change which rows there are."""

        def read_view() -> View:
            rows = read()
            return list_view(rows, listing, columns[0].text, good_s=next_frame_s(row["age_s"] for row in rows))

        listing = Listing(columns=columns, none="nothing of that kind is there", output=session.format, sort=self.sort)
        show_view(session, read_view, watch=self.watch, nouns=nouns, tenant=tenant)
        if self.limit is not None and session.client.connection.total is not None:
            say_cut(self.limit, session.client.connection.total, self.sort)

    def _members(self, members: Mapping[str, str]) -> str | None:
        """Columns as the API calls them."""
        if self.sort is None:
            return None
        words = (key.strip().lower().replace("_", "-").replace(" ", "-") for key in self.sort.split(","))
        signs = ((word[:1] if word.startswith("-") else "", word.removeprefix("-")) for word in words)
        return ",".join(sign + members.get(name, name.replace("-", "_")) for sign, name in signs)


@app.command("hosts")
def top_hosts(
    ctx: typer.Context, text: Filter = None, sort: Sort = "-use", limit: Limit = None, watch: Watch = False
) -> None:
    """GPUs of each host together."""
    session, rows = session_of(ctx), TopRows(text, sort, limit, watch)
    rows.show(session, lambda: session.client.host_activities(**rows.of_server()), HOST_COLUMNS, "host")


@app.command("gpus")
def top_gpus(
    ctx: typer.Context,
    host: OfHost = None,
    model: OfModel = None,
    text: Filter = None,
    sort: Sort = "-use",
    limit: Limit = None,
    watch: Watch = False,
) -> None:
    """GPUs by use."""
    session, rows = session_of(ctx), TopRows(text, sort, limit, watch)
    members = rows.of_server(name="host")
    rows.show(session, lambda: session.client.gpu_activities(host, model, **members), GPU_COLUMNS, "host")


@app.command("vms")
def top_vms(
    ctx: typer.Context,
    tenant: ListTenant = None,
    all_tenants: AllTenants = False,
    text: Filter = None,
    sort: Sort = "-use",
    limit: Limit = None,
    watch: Watch = False,
) -> None:
    """Running VMs by the use of their vGPUs."""
    session, rows = session_of(ctx), TopRows(text, sort, limit, watch)
    whose = listed_tenant(ctx, tenant, all_tenants=all_tenants)
    members = rows.of_server()
    rows.show(session, lambda: session.client.vm_activities(whose, **members), VM_COLUMNS, "vm", tenant=whose)
