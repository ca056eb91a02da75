# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl host provision``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.complete import hosts
from orchestrator.cli.output import shown
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, Format, Output, session_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.client.connection import Json
from orchestrator.core.errors import Fatal, VgpuctlError, error_to_dict
from orchestrator.core.names import check_name

COLUMNS: Final = (
    field("HOST", "name", Fit.WHOLE),
    field("RESULT", "result", Fit.WHOLE),
    Column("WHY", lambda host: shown(host["error"]["message"] if host["error"] else None), Fit.WRAP),
)


def _names(names: list[str]) -> list[str]:
    return list(dict.fromkeys(check_name(name, what="host") for name in names))


def provision(
    ctx: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Hosts.", autocompletion=hosts, callback=_names)
    ],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")] = True,
    output: Output = Format.TABLE,
) -> None:
    """Put the locked driver on hosts; may reboot them. VMs must be stopped."""
    session = session_of(ctx)
    begun = {name: _begun(session, name) for name in names}
    rows = [_ended(session, name, one, wait=wait) for name, one in begun.items()]
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
    told: Json = {"name": name, "result": "started", "operation": begun["operation"], "error": None}
    if not wait:
        return told
    try:
        follow(session, begun["operation"])
    except VgpuctlError as error:
        return {**told, "result": "failed", "error": error_to_dict(error)}
    return {**told, "result": "ready"}
