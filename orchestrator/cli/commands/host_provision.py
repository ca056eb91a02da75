# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl host provision``"""

from __future__ import annotations

from typing import Final

import typer

from orchestrator.cli.commands.host_views import Names, picked_hosts
from orchestrator.cli.confirm import Yes
from orchestrator.cli.output import shown
from orchestrator.cli.parameters import Selector, Wait
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, Format, Output, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.client.connection import Json
from orchestrator.core.errors import Fatal, VgpuctlError, error_to_dict

COLUMNS: Final = (
    field("HOST", "name", Fit.WHOLE),
    field("RESULT", "result", Fit.WHOLE),
    Column("WHY", lambda host: shown(host["error"]["message"] if host["error"] else None), Fit.WRAP),
)


def provision(
    ctx: typer.Context,
    names: Names = None,
    selector: Selector = None,
    yes: Yes = False,
    wait: Wait = True,
    output: Output = Format.TABLE,
) -> None:
    """Put the locked driver on hosts; may reboot them. VMs must be stopped."""
    session = session_of(ctx)
    hosts = picked_hosts(session, names, selector, question="put the driver on hosts", yes=yes)
    begun = {name: _begun(session, name) for name in hosts}
    rows = [_ended(session, name, started, wait=wait) for name, started in begun.items()]
    show_list(rows, COLUMNS, output, "no hosts")
    failed = [row for row in rows if row["error"]]
    if failed:
        raise Fatal(
            "host.not_provisioned",
            f"{len(failed)} of {len(rows)} hosts did not get their driver",
            hint="'vgpuctl operation list --kind provision_host' has their operations; run it again when it is mended",
        )


def _begun(session: CliSession, name: str) -> Json | VgpuctlError:
    try:
        return session.client.provision_host(name)
    except VgpuctlError as error:
        return error


def _ended(session: CliSession, name: str, begun: Json | VgpuctlError, *, wait: bool) -> Json:
    if isinstance(begun, VgpuctlError):
        return {"name": name, "result": "refused", "operation": None, "error": error_to_dict(begun)}
    row: Json = {"name": name, "result": "started", "operation": begun["operation"], "error": None}
    if not wait:
        return row
    try:
        follow(session, begun["operation"])
    except VgpuctlError as error:
        return {**row, "result": "failed", "error": error_to_dict(error)}
    return {**row, "result": "ready"}
