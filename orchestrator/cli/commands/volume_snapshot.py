# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl volume snapshot …``"""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.cli.commands.vm_snapshot import Snapshot
from orchestrator.cli.commands.volume_parts import Name, finish
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.parameters import Sort, Tenant, Wait
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, size
from orchestrator.cli.tree import new_group

app = new_group("Snapshots of a data volume: what was on it, to go back to.")

COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    size("SIZE", "size_bytes"),
    field("STATE", "state"),
    Column("WITH", lambda row: row.get("taken_with") or "-"),
    age(),
)


@app.command("create")
def create(ctx: typer.Context, name: Name, snapshot: Snapshot, tenant: Tenant = "default", wait: Wait = True) -> None:
    """Take a snapshot of a data volume, whose VM may run.

    Of one that runs its guest agent freezes the file systems for a moment; without one it is what a power cut would
    have left.
    """
    session = session_of(ctx)
    begun = session.client.create_volume_snapshot(name, tenant, snapshot)
    finish(session, name, begun, f"{name} has snapshot {snapshot}", session.format, wait=wait)


@app.command("list")
def list_snapshots(ctx: typer.Context, name: Name, tenant: Tenant = "default", sort: Sort = None) -> None:
    """List the snapshots of a data volume."""
    snapshots = session_of(ctx).client.volume_snapshots(name, tenant)
    show_list(snapshots, COLUMNS, format_of(ctx), "no snapshots", sort)


@app.command("delete")
def delete(
    ctx: typer.Context, name: Name, snapshot: Snapshot, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True
) -> None:
    """Delete a snapshot; the volume stays as it is."""
    session = session_of(ctx)
    confirm("delete snapshot", [snapshot], yes=yes)
    begun = session.client.delete_volume_snapshot(name, tenant, snapshot)
    finish(session, name, begun, f"snapshot {snapshot} is deleted", session.format, wait=wait)


@app.command("restore")
def restore(
    ctx: typer.Context, name: Name, snapshot: Snapshot, tenant: Tenant = "default", yes: Yes = False, wait: Wait = True
) -> None:
    """Put a volume that no running VM has back to a snapshot.

    What was written to the volume since is gone; the snapshot stays.
    """
    session = session_of(ctx)
    confirm("replace what is on volume", [name], yes=yes)
    begun = session.client.restore_volume_snapshot(name, tenant, snapshot)
    finish(session, name, begun, f"{name} is as in snapshot {snapshot}", session.format, wait=wait)
