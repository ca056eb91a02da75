# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl host check``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli import enrolment
from orchestrator.cli.complete import hosts
from orchestrator.cli.session import CliSession, Format, Output, session_of
from orchestrator.cli.table import Fit, Listing, field, show_rows
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.host import check_address, check_user
from orchestrator.core.names import check_name

NOT_READY: Final = 3
"""Exit code when something is missing."""
COLUMNS: Final = (
    field("WHAT", "name", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("FOUND", "found", Fit.WRAP),
    field("REMEDY", "remedy", Fit.WRAP),
)


def check(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of a host that is added.", autocompletion=hosts)] = None,
    address: Annotated[str | None, typer.Option("--address", help="Or the address of one that is not.")] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of its ssh server.")] = 22,
    user: Annotated[str, typer.Option("--user", help="SSH user for Ansible.")] = "root",
    provisioning_key: Annotated[
        Path | None, typer.Option("--provisioning-key", help="Private key; your own ssh key when left out.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option("--host-key-fingerprint", help="SHA256:… of the host's key, known from elsewhere.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept the host key that answers now.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List what a host lacks and what would mend it. Exit code 3 when something is missing. Changes nothing."""
    session = session_of(ctx)
    if (name is None) == (address is None):
        raise InvalidInput("cli.usage", "give a host's name or --address", hint="run 'vgpuctl host check --help'")
    answer: Json
    if address is None:
        answer = session.client.check_host(check_name(name or "", what="host"))
    else:
        answer = _check_new(session, address, port, user, provisioning_key, fingerprint, yes=yes)
    missing = sum(requirement["state"] == "missing" for requirement in answer["requirements"])
    summary = f"{missing} missing" if missing else "nothing is missing"
    listing = Listing(columns=COLUMNS, none="nothing is asked of it", output=output, said=[summary])
    show_rows(answer, answer["requirements"], listing)
    raise typer.Exit(NOT_READY if missing else 0)


def _check_new(
    session: CliSession, address: str, port: int, user: str, key: Path | None, fingerprint: str | None, *, yes: bool
) -> Json:
    wanted: dict[str, object] = {
        "address": check_address(address),
        "port": port,
        "user": check_user(user),
        "provisioning_key": enrolment.private_key(key),
    }
    wanted["fingerprint"] = fingerprint or enrolment.confirmed_fingerprint(session, address, port, yes=yes)
    return session.client.check_new_host(wanted)
