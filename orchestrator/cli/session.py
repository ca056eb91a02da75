# SPDX-License-Identifier: Apache-2.0
"""What one run of the command line knows: output format, state directory, its connection to the server."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import typer
from typer.core import TyperOption

from orchestrator.cli import clock
from orchestrator.client.contexts import CONTEXT_VARIABLE, ClientContext, current
from orchestrator.client.location import state_directory
from orchestrator.client.token import token_headers
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import check_name
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

if TYPE_CHECKING:
    from orchestrator.client.client import Client
    from orchestrator.client.connection import Connection


TENANT_VARIABLE: Final = "VGPUCTL_TENANT"


class Format(str):
    """How results are printed: one of these, or ``jsonpath=EXPRESSION`` for single values."""

    __slots__ = ()
    TABLE: ClassVar[Format]
    WIDE: ClassVar[Format]
    """All columns, none cut."""
    NAME: ClassVar[Format]
    """Only what it is called."""
    CSV: ClassVar[Format]
    JSON: ClassVar[Format]
    YAML: ClassVar[Format]

    @property
    def path(self) -> str | None:
        """The expression of ``jsonpath=``."""
        return self.removeprefix(_JSONPATH) if self.startswith(_JSONPATH) else None


Format.TABLE, Format.WIDE, Format.NAME = Format("table"), Format("wide"), Format("name")
Format.CSV, Format.JSON, Format.YAML = Format("csv"), Format("json"), Format("yaml")
_JSONPATH: Final = "jsonpath="
FORMATS: Final = (Format.TABLE, Format.WIDE, Format.NAME, Format.CSV, Format.JSON, Format.YAML)


def parse_format(text: str) -> Format:
    """:raises InvalidInput: ``cli.output``, ``cli.jsonpath``"""
    output_format = next((known for known in FORMATS if known == text), Format(text))
    if output_format.path is not None:
        from orchestrator.cli.jsonpath import parse_path

        parse_path(output_format.path)
    elif output_format not in FORMATS:
        raise InvalidInput(
            "cli.output", f"{ascii(text)[:40]} is no way to print", hint=f"{', '.join(FORMATS)} or jsonpath=PATH"
        )
    return output_format


class CliSession:
    """Made by ``main`` before the arguments are read; the commands find it in typer's context."""

    def __init__(self) -> None:
        self.format = Format.TABLE
        self.named_tenant: str | None = None
        """What the command's ``--tenant`` says; what its failure tells people to run says it too."""
        self.command = ""
        """Words of the command after ``vgpuctl``, once they are read."""
        self.named: dict[str, list[str]] = {}
        """Names of VMs, networks and volumes that were typed, by what they are of."""

    @property
    def is_connected(self) -> bool:
        """Whether a server was asked already."""
        return "client" in self.__dict__

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
        from orchestrator.client.client import Client

        connection = self._connection()
        clock.go_by(connection.server_time)
        return Client(connection)

    def _connection(self) -> Connection:
        if self.context is not None and self.context.url is not None:
            from orchestrator.client.tls_http import connect_to

            return connect_to(self.context)
        from orchestrator.client.autostart import connect

        connection = connect(self.state)
        if connection.server_is_new:
            chosen = ascii(str(self.state))[1:-1]
            print(f"started a new, empty server in {chosen}; VGPUCTL_STATE or a context names another", file=sys.stderr)
        return connection

    @property
    def chosen_tenant(self) -> str | None:
        """What ``VGPUCTL_TENANT`` or the context says; None: neither does.

        :raises InvalidInput: ``tenant.name_invalid``
        """
        chosen = os.environ.get(TENANT_VARIABLE) or (None if self.context is None else self.context.tenant)
        return None if chosen is None else check_name(chosen, what="tenant")

    @cached_property
    def own_tenant(self) -> str:
        """Whose things a command is about that names no tenant."""
        return self.chosen_tenant or self.only_tenant or DEFAULT_TENANT

    @cached_property
    def only_tenant(self) -> str | None:
        """The only one that a token has; None: it has several, or is an operator's, or nobody shows one."""
        elsewhere = self.context is not None and self.context.url is not None
        only = self.client.whoami()["only_tenant"] if elsewhere or token_headers() else None
        return None if only is None else check_name(str(only), what="tenant")

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
    session = ctx.find_root().obj
    if not isinstance(session, CliSession):
        raise TypeError("the command line was not started by its main()")
    return session


def format_of(ctx: typer.Context) -> Format:
    """What ``-o`` says, or what the command prints without it."""
    return session_of(ctx).format


def _remember(ctx: typer.Context, _: Any, chosen: Format) -> None:
    if isinstance(ctx.find_root().obj, CliSession):
        session_of(ctx).format = chosen


def _formats(_: typer.Context, __: list[str], incomplete: str) -> list[str]:
    return [name for name in (*FORMATS, _JSONPATH) if name.startswith(incomplete)]


def output_option(default: Format) -> TyperOption:
    """``-o``, which the command's function is not given: the session has it."""
    return TyperOption(
        param_decls=["output", "--output", "-o"],
        type=parse_format,
        default=default,
        show_default=True,
        callback=_remember,
        expose_value=False,
        autocompletion=_formats,
        metavar="FORMAT",
        help="table, wide, name, csv, json, yaml or jsonpath=PATH.",
    )
