# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl login``"""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.files import read_text, write_private
from orchestrator.cli.output import printable, show
from orchestrator.cli.session import format_of, session_of
from orchestrator.client.contexts import path
from orchestrator.client.program import need_extra
from orchestrator.core.errors import InvalidInput, why_unwritable
from orchestrator.regular_file import MAX_CERTIFICATES_BYTES


def login(
    ctx: typer.Context,
    issuer: Annotated[str, typer.Option("--issuer", help="Address of the identity provider.")],
    client_id: Annotated[str, typer.Option("--client-id", help="What the pool is called there.")],
    save: Annotated[
        Path | None,
        typer.Option("--save", help="Where the token goes, for you alone; otherwise the context's token file."),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="PEM file of whom to trust as the provider.")
    ] = None,
    acr: Annotated[
        str | None, typer.Option("--acr", metavar="LEVEL", help="Ask for this level, as sites may of admins.")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser; the address is printed anyway.")] = True,
) -> None:
    """Log in at an identity provider; later commands act as you."""
    need_extra("login")
    from orchestrator.oidc.login import log_in
    from orchestrator.oidc.provider import Provider, check_address

    check_address(issuer)
    if ca_file is not None:
        read_text(ca_file, what="file", max_bytes=MAX_CERTIFICATES_BYTES)
    file = save or _token_file(ctx)

    def send(address: str) -> None:
        typer.echo(f"log in here: {printable(address)}", err=True)
        if browser:
            webbrowser.open(address)

    token = log_in(Provider(issuer=issuer, ca_file=ca_file), client_id, send, acr=acr)
    _keep(file, token)
    show({"token_file": str(file)}, format_of(ctx), lambda: [f"you are logged in; the token is in {file}"])


def _token_file(ctx: typer.Context) -> Path:
    context = session_of(ctx).context
    return Path(context.token_file) if context is not None and context.token_file else path().with_name("login.token")


def _keep(file: Path, token: str) -> None:
    """In one piece and never others' to read."""
    try:
        write_private(file, f"{token}\n")
    except OSError as error:
        raise InvalidInput(
            "token.unwritable",
            f"cannot write {str(file)!a}: {why_unwritable(error)}",
            hint="look whether you may write there and the disk has room",
        ) from error
