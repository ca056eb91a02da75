# SPDX-License-Identifier: Apache-2.0
"""What one run of the command line knows: output format, state directory, its connection to the server."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.client.contexts import CONTEXT_VARIABLE, ClientContext, current
from orchestrator.client.location import state_directory
from orchestrator.core.errors import InvalidInput

if TYPE_CHECKING:
    from orchestrator.client.client import Client


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class CliSession:
    """Made by ``main`` before the arguments are read; the commands find it in typer's context."""

    def __init__(self) -> None:
        self.format = Format.TABLE

    @cached_property
    def context(self) -> ClientContext | None:
        """Which server was chosen; None: the one of the state directory."""
        return current()

    @cached_property
    def state(self) -> Path:
        """What this machine keeps, and where its server is."""
        chosen = self.context
        return Path(chosen.state) if chosen is not None and chosen.state is not None else state_directory()

    def variables(self) -> dict[str, str]:
        """The environment by which another command finds the same server."""
        chosen = {} if self.context is None else {CONTEXT_VARIABLE: self.context.name}
        return {"VGPUCTL_STATE": str(self.state), **chosen}

    @property
    def local_state(self) -> Path:
        """:raises InvalidInput: ``context.elsewhere``: the chosen server is none of this machine"""
        if self.context is not None and self.context.url is not None:
            raise InvalidInput(
                "context.elsewhere",
                f"{self.context.name} is a server elsewhere",
                hint="run this there, or 'vgpuctl context use' for the server here",
            )
        return self.state

    @cached_property
    def client(self) -> Client:
        """Connected when first used; starts the local server when none runs."""
        from orchestrator.client.autostart import connect
        from orchestrator.client.client import Client

        if self.context is not None and self.context.url is not None:
            from orchestrator.client.tls_http import connect_to

            return Client(connect_to(self.context))
        return Client(connect(self.state))

    def sibling(self) -> CliSession:
        """Another connection to the same server, for another thread."""
        other = CliSession()
        other.format = self.format
        return other

    def reconnect(self) -> Client:
        """A new connection after the server went away."""
        self.__dict__.pop("client", None)
        return self.client


def session_of(ctx: typer.Context) -> CliSession:
    """The session of this run."""
    session = ctx.find_root().obj
    if not isinstance(session, CliSession):
        raise TypeError("the command line was not started by its main()")
    return session


def _remember(ctx: typer.Context, chosen: Format) -> Format:
    if isinstance(ctx.find_root().obj, CliSession):
        session_of(ctx).format = chosen
    return chosen


Output = Annotated[
    Format, typer.Option("--output", "-o", callback=_remember, help="How to print the result.", show_default=True)
]
