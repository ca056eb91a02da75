# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl web``"""

from __future__ import annotations

import os
import webbrowser
from html import escape
from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.files import write_private
from orchestrator.cli.output import printable
from orchestrator.cli.session import session_of
from orchestrator.client.contexts import ClientContext
from orchestrator.client.location import state_directory
from orchestrator.core.errors import Fatal, why_unwritable

_PAGE: Final = """<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<title>vgpuctl</title><meta http-equiv="refresh" content="0; url={address}">
<p><a href="{address}">The pages of vgpuctl</a></p>
"""
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser too, where there is one.")]


def web(ctx: typer.Context, *, open_it: Open = True) -> None:
    """Print the address of the pages for browsers; it logs you in once. Within a minute, that is.

    On the server's machine the address is one of this machine alone, and nobody else's browser finds it.
    """
    session = session_of(ctx)
    given = session.client.web_ticket()
    address = f"{_origin_of(session.context, given['address'])}/web/ticket#{given['ticket']}"
    typer.echo(printable(address))
    if open_it:
        _open(address)


def _open(address: str) -> None:
    """By way of a file that nobody else can read: every user of the machine sees what a browser is started with."""
    directory = os.environ.get("XDG_RUNTIME_DIR")
    file = (Path(directory) if directory else state_directory()).absolute() / "vgpuctl-web.html"
    try:
        write_private(file, _PAGE.format(address=escape(address)))
    except OSError as error:
        typer.echo(f"open it yourself: {printable(str(file))} cannot be written: {why_unwritable(error)}", err=True)
        return
    webbrowser.open(file.as_uri())


def _origin_of(context: ClientContext | None, local: str | None) -> str:
    """A server elsewhere has its pages where its API is, and does not say what is opened here. ``local``: what one of
    this machine named. :raises Fatal: ``server.no_pages``"""
    if context is None or context.url is None:
        if local is None:
            raise Fatal("server.no_pages", "the server names no address of its pages", hint="is it of this version?")
        return local
    host, port = context.address()
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
