# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network …``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.complete import networks
from orchestrator.cli.group import new_group
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import Format, Output, session_of
from orchestrator.cli.table import Fit, field, show_list
from orchestrator.core.names import check_name

app = new_group("Networks that VMs are put on.")

COLUMNS: Final = (field("NAME", "name", Fit.WHOLE), field("SUBNET", "subnet"))


@app.command("add")
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the new network.")],
    subnet: Annotated[
        str | None, typer.Option("--subnet", help="For example 10.88.1.0/24; a free one otherwise.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Add a NAT network; hosts get it when a VM needs it."""
    network = session_of(ctx).client.add_network({"name": check_name(name, what="network"), "subnet": subnet})
    show(network, output, lambda: [f"{shown(network['name'])}: {shown(network['subnet'])}"])


@app.command("list")
def list_networks(ctx: typer.Context, sort: Sort = None, output: Output = Format.TABLE) -> None:
    """List networks."""
    show_list(session_of(ctx).client.networks(), COLUMNS, output, "no networks", sort)


@app.command("show")
def show_network(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the network.", autocompletion=networks)],
    output: Output = Format.TABLE,
) -> None:
    """Show one network and the VMs on it that you may know of."""
    client = session_of(ctx).client
    network = client.network(check_name(name, what="network"))
    vms = [f"{vm['tenant']}/{vm['name']}" for vm in client.vms() if vm["network"] == name]
    pairs = [("name", shown(network["name"])), ("subnet", shown(network["subnet"])), ("VMs", shown(vms))]
    show({**network, "vms": vms}, output, lambda: render_details(pairs))
