# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl tenant key …``"""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.complete import tenants
from orchestrator.cli.confirm import Yes, confirm, confirm_picked
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import tenant_name
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.tree import new_group

app = new_group("The key of a tenant's encrypted volumes.")

Name = Annotated[str, typer.Argument(help="Name of the tenant.", autocompletion=tenants, callback=tenant_name)]


@app.command("rotate")
def rotate(ctx: typer.Context, name: Name) -> None:
    """Close the keys of a tenant's encrypted volumes with a new one.

    What is on them stays, and VMs run on.
    """
    rotated = session_of(ctx).client.rotate_tenant_key(name)
    words = f"tenant {name} has a new key, for {shown(rotated['volumes'])} volumes"
    show(rotated, format_of(ctx), lambda: [words])


@app.command("revoke")
def revoke(ctx: typer.Context, name: Name, yes: Yes = False) -> None:
    """Destroy a tenant's key: nobody reads its encrypted volumes again.

    Volumes that come later have another one. Refused while a VM runs that has one of them. Backups of the server's
    database have the key for as long as they are kept.
    """
    client = session_of(ctx).client
    volumes = [volume["name"] for volume in client.volumes(name) if volume.get("encryption") == "luks"]
    confirm_picked("destroy the key of tenant", [name], yes=yes)
    if volumes:
        confirm("destroy all that is on volumes", volumes, yes=yes)
    revoked = client.revoke_tenant_key(name)
    words = f"the key of tenant {name} is destroyed, and what was on {shown(revoked['volumes'])} volumes"
    show(revoked, format_of(ctx), lambda: [words])
