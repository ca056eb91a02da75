# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl tenant key …``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.complete import tenants
from orchestrator.cli.confirm import Yes, confirm, confirm_picked
from orchestrator.cli.files import MAX_KEY_BYTES, read_text
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import tenant_name
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.tree import new_group
from orchestrator.core.hosts.volume_key import key_bytes

app = new_group("The key of a tenant's encrypted disks and volumes.")

Name = Annotated[str, typer.Argument(help="Name of the tenant.", autocompletion=tenants, callback=tenant_name)]


KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file", metavar="FILE", help="The tenant's own: 32 bytes in base64; -: stdin. Else one is drawn."
    ),
]


@app.command("show")
def show_key(ctx: typer.Context, name: Name) -> None:
    """Show which key a tenant has, and who made it; not the key."""
    key = session_of(ctx).client.tenant_key(name)
    shows = [
        ("key", key["id"] or "none"),
        ("made by", key["origin"] or "-"),
        ("disks and volumes", str(key["volumes"])),
    ]
    show(key, format_of(ctx), lambda: render_details(shows), name=key["id"])


@app.command("rotate")
def rotate(ctx: typer.Context, name: Name, key_file: KeyFile = None) -> None:
    """Close the keys of encrypted disks and volumes with a new one.

    What is on them stays, and VMs run on.
    """
    own = None if key_file is None else read_text(key_file, what="key_file", max_bytes=MAX_KEY_BYTES).strip()
    if own is not None:
        key_bytes(own)
    rotated = session_of(ctx).client.rotate_tenant_key(name, own)
    words = f"tenant {name} has key {rotated['id']}; encrypted disks and volumes: {shown(rotated['volumes'])}"
    none = f"tenant {name} needs no key yet: its first encrypted disk or volume brings one"
    show(rotated, format_of(ctx), lambda: [none if rotated["id"] is None else words], name=rotated["id"])


@app.command("revoke")
def revoke(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
    """Destroy a tenant's key: what it closed is read by nobody again.

    That is all that is on its VMs' encrypted disks and its encrypted volumes. Those that come later have another one.
    Refused while a VM runs that has one of them. Backups of the server's database have the key for as long as they are
    kept.
    """
    client = session_of(ctx).client
    volumes = [volume["name"] for volume in client.volumes(name) if volume.get("encryption") == "luks"]
    disks = [f"the disk of VM {vm['name']}" for vm in client.vms(name) if vm.get("encrypted")]
    confirm_picked("destroy the key of tenant", [name], yes=yes)
    if volumes or disks:
        confirm("destroy all that is on", [*volumes, *disks], yes=yes)
    revoked = client.revoke_tenant_key(name)
    number = shown(revoked["volumes"])
    words = f"the key of tenant {name} is destroyed; disks and volumes that nobody reads again: {number}"
    show(revoked, format_of(ctx), lambda: [words])
