# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm snapshot …``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.commands.vm_views import taken
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.parameters import Name, Sort, Tenant, Wait
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, size
from orchestrator.cli.tree import new_group
from orchestrator.cli.vm_outcome import finish
from orchestrator.core.names import check_name

app = new_group("Snapshots of a VM's disk: what was on it, to go back to.")

Snapshot = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT", help="Name of the snapshot.", callback=lambda text: check_name(text, what="snapshot")
    ),
]

COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    Column("TAKEN", taken),
    size("SIZE", "size_bytes"),
    Column("VOLUMES", lambda row: ", ".join(row.get("volumes") or ()) or "-"),
    age(),
)


Volumes = Annotated[
    bool, typer.Option("--volumes", help="Also of the data volumes that it writes, at the same moment.")
]


@app.command("create")
def create(
    ctx: typer.Context, name: Name, snapshot: Snapshot, volumes: Volumes = False, tenant: Tenant = "default",
    wait: Wait = True,
) -> None:  # fmt: skip
    """Take a snapshot of a VM's disk; it may run meanwhile.

    Of one that runs its guest agent freezes the file systems for a moment; without one it is what a power cut would
    have left. Memory is not part of it, and data volumes are with --volumes.
    """
    session = session_of(ctx)
    finish(session, session.client.create_snapshot(name, tenant, snapshot, volumes=volumes), tenant, wait=wait)


@app.command("list")
def list_snapshots(ctx: typer.Context, name: Name, tenant: Tenant = "default", sort: Sort = None) -> None:
    """List the snapshots of a VM's disk."""
    snapshots = session_of(ctx).client.snapshots(name, tenant)
    show_list(snapshots, COLUMNS, format_of(ctx), "no snapshots", sort)


@app.command("delete")
def delete(
    ctx: typer.Context, name: Name, snapshot: Snapshot, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True
) -> None:
    """Delete a snapshot; the disk stays as it is.

    With it go those of volumes that were taken with it.
    """
    session = session_of(ctx)
    confirm("delete snapshot", [snapshot], yes=yes)
    finish(session, session.client.delete_snapshot(name, tenant, snapshot), tenant, wait=wait)


@app.command("restore")
def restore(
    ctx: typer.Context, name: Name, snapshot: Snapshot, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True
) -> None:
    """Put a stopped VM's disk back to a snapshot, which stays.

    So are data volumes of which it was taken too. What was written since is gone.
    """
    session = session_of(ctx)
    volumes = any(each.get("volumes") for each in session.client.snapshots(name, tenant) if each["name"] == snapshot)
    confirm(f"replace the disk {'and data volumes ' if volumes else ''}of VM", [name], yes=yes)
    finish(session, session.client.restore_snapshot(name, tenant, snapshot), tenant, wait=wait)
