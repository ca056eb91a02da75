# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl top …``: what hosts, GPUs and VMs do now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from orchestrator.cli.group import new_group
from orchestrator.cli.parameters import AllTenants, ListTenant, OfHost, OfModel, Sort, listed_tenant
from orchestrator.cli.readings import GPU_COLUMNS, HOST_COLUMNS, VM_COLUMNS, Row, gpu_rows, host_row, vm_row
from orchestrator.cli.session import CliSession, Format, Output, session_of
from orchestrator.cli.table import Column, Listing
from orchestrator.cli.watch import View, Watch, list_view, show_view
from orchestrator.core.errors import NotFound

app = new_group("What hosts, GPUs and VMs do now; nothing is older than 30 s.")

Filter = Annotated[str | None, typer.Option("--filter", metavar="TEXT", help="Only rows with this in one of them.")]


@app.command("hosts")
def top_hosts(
    ctx: typer.Context, text: Filter = None, sort: Sort = "-use", watch: Watch = False, output: Output = Format.TABLE
) -> None:
    """GPUs of each host together."""
    session = session_of(ctx)
    _show(session, lambda: [host_row(host) for host in _hosts(session, None)], HOST_COLUMNS, text, sort, watch, output)


@app.command("gpus")
def top_gpus(
    ctx: typer.Context,
    host: OfHost = None,
    model: OfModel = None,
    text: Filter = None,
    sort: Sort = "-use",
    watch: Watch = False,
    output: Output = Format.TABLE,
) -> None:
    """GPUs by use."""
    session = session_of(ctx)

    def rows() -> list[Row]:
        gpus = [gpu for readings in _hosts(session, host) for gpu in gpu_rows(readings)]
        return [gpu for gpu in gpus if model is None or model.lower() in gpu["model"].lower()]

    _show(session, rows, GPU_COLUMNS, text, sort, watch, output)


@app.command("vms")
def top_vms(
    ctx: typer.Context,
    tenant: ListTenant = None,
    all_tenants: AllTenants = False,
    text: Filter = None,
    sort: Sort = "-use",
    watch: Watch = False,
    output: Output = Format.TABLE,
) -> None:
    """Running VMs by the use of their vGPUs."""
    session = session_of(ctx)
    whose = listed_tenant(ctx, tenant, all_tenants=all_tenants)

    def rows() -> list[Row]:
        vms = session.client.vms(whose, state="running")
        now = _readings_of(lambda vm: session.client.vm_readings(vm["name"], vm["tenant"], history=True), vms)
        return [vm_row(vm) for vm in now]

    _show(session, rows, VM_COLUMNS, text, sort, watch, output)


def _hosts(session: CliSession, host: str | None) -> list[Any]:
    if host is not None:
        return [session.client.host_readings(host)]
    return _readings_of(lambda known: session.client.host_readings(known["name"]), session.client.hosts())


def _readings_of(read: Callable[[Any], Any], listed: Iterable[Any]) -> list[Any]:
    """What goes between being listed and being read is left out."""
    readings = []
    for known in listed:
        with suppress(NotFound):
            readings.append(read(known))
    return readings


def _show(
    session: CliSession,
    rows: Callable[[], list[Row]],
    columns: Sequence[Column],
    text: str | None,
    sort: str | None,
    watch: bool,
    output: Format,
) -> None:
    listing = Listing(columns=columns, none="nothing of that kind is there", output=output, sort=sort)

    def read_view() -> View:
        fitting = [row for row in rows() if text is None or any(text in str(cell) for cell in row.values())]
        return list_view(fitting, listing, columns[0].text)

    show_view(session, read_view, output, watch=watch)
