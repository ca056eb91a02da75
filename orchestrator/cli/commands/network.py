# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl network …``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.group import new_group
from orchestrator.cli.output import show, shown
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
def list_networks(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List networks."""
    show_list(session_of(ctx).client.networks(), COLUMNS, output, "no networks")
