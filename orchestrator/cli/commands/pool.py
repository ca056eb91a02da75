# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl pool …``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.complete import hosts, pools
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort, Wait, pool_name
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.table import Fit, age, field, show_list, size
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.names import check_name
from orchestrator.core.units import show_size

app = new_group("Directories that several hosts mount, for disks.")

COLUMNS = (
    field("NAME", "name", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    size("CAPACITY", "capacity_bytes"),
    size("CLAIMED", "claimed_bytes"),
    size("FREE", "free_bytes"),
    field("HOSTS", "hosts"),
    age(),
)


def _host_name(text: str | None) -> str | None:
    return None if text is None else check_name(text, what="host")


Name = Annotated[str, typer.Argument(help="Name of the pool.", autocompletion=pools, callback=pool_name)]
NewName = Annotated[str, typer.Argument(help="Name of the new pool, and of its directory.", callback=pool_name)]
ByHost = Annotated[
    str | None,
    typer.Option(
        "--host", help="Host that writes the pool's id; else one that has it mounted.", autocompletion=hosts,
        callback=_host_name,
    ),
]  # fmt: skip


def details(pool: Mapping[str, Any]) -> list[str]:
    return render_details(
        [
            ("name", shown(pool["name"])),
            ("state", shown(pool["state"])),
            ("kind", shown(pool["kind"])),
            ("capacity", show_size(pool["capacity_bytes"])),
            ("claimed", show_size(pool["claimed_bytes"])),
            ("free", show_size(pool["free_bytes"])),
            ("hosts", shown(", ".join(pool["hosts"]) or "none has it mounted")),
            ("id", shown(pool["id"])),
            ("created", show_time(pool["created_at"])),
        ]
    )


@app.command("create")
def create(ctx: typer.Context, name: NewName, host: ByHost = None, wait: Wait = True) -> None:
    """Make a directory a pool that hosts have mounted.

    At /var/lib/vgpuctl-agent/pools/NAME, by NFS 4 or CephFS.
    """
    session = session_of(ctx)
    _finish(session, name, session.client.create_pool(name, host), f"pool {name} is ready", wait=wait)


@app.command("list")
def list_pools(ctx: typer.Context, sort: Sort = None) -> None:
    """List pools, what is left in them, and which hosts have them."""
    show_list(session_of(ctx).client.pools(), COLUMNS, format_of(ctx), "no pools", sort)


@app.command("show")
def show_pool(ctx: typer.Context, name: Name) -> None:
    """Show one pool."""
    pool = session_of(ctx).client.pool(name)
    show(pool, format_of(ctx), lambda: details(pool))


@app.command("delete")
def delete(ctx: typer.Context, name: Name, yes: Yes = False, wait: Wait = True) -> None:
    """Delete a pool that nothing lies in; its directory stays mounted."""
    session = session_of(ctx)
    session.client.pool(name)
    confirm("delete pool", [name], yes=yes)
    _finish(session, name, session.client.delete_pool(name), f"pool {name} is deleted", wait=wait)


def _finish(session: CliSession, name: str, started: Json, sentence: str, *, wait: bool) -> None:
    if wait:
        show(follow(session, started["operation"]), session.format, lambda: [sentence], name=name)
    else:
        show(started, session.format, lambda: [f"operation {started['operation']} works on it"], name=name)
