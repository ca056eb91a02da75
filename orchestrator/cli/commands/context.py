# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl context …``"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.complete import contexts
from orchestrator.cli.files import MAX_KEY_BYTES, read_text
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import format_of
from orchestrator.cli.table import Column, Fit, field, show_list
from orchestrator.cli.tree import new_group
from orchestrator.client.contexts import ClientContext, load, path, save
from orchestrator.client.token import check_token_file
from orchestrator.core.errors import InvalidInput

app = new_group("Names for the servers you use. VGPUCTL_CONTEXT chooses one for a command.")

Name = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=contexts)]
Url = Annotated[str | None, typer.Option("--url", help="https://HOST:PORT of a server elsewhere.")]
State = Annotated[Path | None, typer.Option("--state", help="State directory of a server here.")]
_NONE: Final = "'' for none"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    Column("CURRENT", lambda row: "yes" if row["current"] else "-"),
    Column("SERVER", lambda row: str(row["url"] or row["state"]), Fit.WHOLE),
    field("TENANT", "tenant", spare=True),
    field("TOKEN FILE", "token_file", Fit.WHOLE, spare=True),
)


def _absolute(file: Path | None) -> str | None:
    return None if file is None else str(file.absolute())


def _file(text: str) -> Path | None:
    return Path(text) if text else None


def _certificates(file: Path | None) -> str | None:
    """:raises InvalidInput: ``ca_file.…``: it cannot be read or has no certificate"""
    if file is not None and _BEGIN not in read_text(file, what="ca_file", max_bytes=MAX_KEY_BYTES):
        raise InvalidInput("ca_file.no_certificate", f"{str(file)!a} has no certificate", hint="give a PEM file")
    return _absolute(file)


def _token(file: Path | None) -> str | None:
    """:raises InvalidInput: ``token.…``: it cannot be read or has no token"""
    if file is not None:
        check_token_file(file)
    return _absolute(file)


@app.command("add")
def add(
    ctx: typer.Context,
    name: Name,
    url: Url = None,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="PEM file of whom to trust.")] = None,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="File with your token, mode 0600.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="For commands that name none.")] = None,
    state: State = None,
) -> None:
    """Remember a server under a name. The first one becomes the current one."""
    context = ClientContext(
        name=name,
        url=url,
        ca_file=_certificates(ca_file),
        token_file=_token(token_file),
        state=_absolute(state),
        tenant=tenant,
    )
    contexts = load(path()).added(context)
    if contexts.current is None and len(contexts.contexts) == 1:
        contexts = replace(contexts, current=name)
    save(path(), contexts)
    show(asdict(context), format_of(ctx), lambda: [f"{name} is {context.url or context.state}"])


@app.command("set")
def change(
    ctx: typer.Context,
    name: Name,
    url: Url = None,
    ca_file: Annotated[str | None, typer.Option("--ca-file", help=f"PEM file of whom to trust; {_NONE}.")] = None,
    token_file: Annotated[str | None, typer.Option("--token-file", help=f"File with your token; {_NONE}.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help=f"For commands that name none; {_NONE}.")] = None,
    state: State = None,
) -> None:
    """Correct a context. What is not named stays; a URL takes the place of a state directory, or it of a URL."""
    contexts = load(path())
    context = contexts.get(name)
    if url is not None or state is not None:
        context = replace(context, url=url, state=_absolute(state))
    if ca_file is not None:
        context = replace(context, ca_file=_certificates(_file(ca_file)))
    if token_file is not None:
        context = replace(context, token_file=_token(_file(token_file)))
    if tenant is not None:
        context = replace(context, tenant=tenant or None)
    save(path(), contexts.changed(context))
    show(asdict(context), format_of(ctx), lambda: [f"{name} is {context.url or context.state}"])


@app.command("use")
def use(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name of the context; none: the server here.", autocompletion=contexts)
    ] = None,
) -> None:
    """Make a context the current one."""
    contexts = load(path())
    if name is not None:
        contexts.get(name)
    save(path(), replace(contexts, current=name))
    show({"current": name}, format_of(ctx), lambda: [f"commands go to {name or 'the server here'}"])


@app.command("list")
def list_contexts(ctx: typer.Context, sort: Sort = None) -> None:
    """List contexts."""
    contexts = load(path())
    rows = [
        {**asdict(context), "current": name == contexts.current} for name, context in sorted(contexts.contexts.items())
    ]
    show_list(rows, COLUMNS, format_of(ctx), "no contexts: commands go to the server here", sort)


@app.command("show")
def show_context(ctx: typer.Context, name: Name) -> None:
    """Show one context."""
    contexts = load(path())
    context = contexts.get(name)
    row = {**asdict(context), "current": name == contexts.current}
    labels = {"ca_file": "CA file", "token_file": "token file", "url": "URL", "state": "state directory"}
    show(
        row,
        format_of(ctx),
        lambda: render_details([(labels.get(key, key), shown(value)) for key, value in row.items()]),
    )


@app.command("remove")
def remove(ctx: typer.Context, name: Name) -> None:
    """Forget a context; its server is left alone."""
    save(path(), load(path()).without(name))
    show({"removed": name}, format_of(ctx), lambda: [f"{name} is forgotten"])
