# SPDX-License-Identifier: Apache-2.0
"""Names that the shell completes. Asks a server that runs; a press of Tab never starts one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import typer

from orchestrator.cli.session import CliSession
from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.location import state_directory
from orchestrator.client.token import token_headers
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.tenant import DEFAULT_TENANT

_PLAIN: Final = re.compile(r"(?:[a-z0-9-]{1,63}/)?[A-Za-z0-9][A-Za-z0-9 ._+-]{0,99}")
"""A shell evaluates what it completes."""


def _names(ask: Callable[[Client], Iterable[Mapping[str, Any]]], incomplete: str, key: str = "name") -> list[str]:
    try:
        connection = connect_running(state_directory())
        rows = ask(Client(connection)) if connection is not None else ()
        found = {str(row[key]) for row in rows if str(row[key]).startswith(incomplete)}
        return sorted(name for name in found if _PLAIN.fullmatch(name))
    except VgpuctlError:
        return []


def _scoped(ctx: typer.Context, ask: Callable[[Client], Iterable[Mapping[str, Any]]], incomplete: str) -> list[str]:
    """Names of the tenant that the command is about; those of others as ``TENANT/NAME``, unless one was named."""
    source = ctx.get_parameter_source("tenant")
    named = source is not None and source.name == "COMMANDLINE"

    def rows(client: Client) -> Iterator[dict[str, str]]:
        tenant = str(ctx.params["tenant"]) if named else _own_tenant(client)
        for row in ask(client):
            if row["tenant"] in {tenant, None}:
                yield {"name": str(row["name"])}
            elif not named:
                yield {"name": f"{row['tenant']}/{row['name']}"}

    return _names(rows, incomplete)


def _own_tenant(client: Client) -> str:
    only = client.whoami()["only_tenant"] if token_headers() else None
    return CliSession().chosen_tenant or str(only or DEFAULT_TENANT)


def vms(ctx: typer.Context, incomplete: str) -> list[str]:
    return _scoped(ctx, lambda client: client.vms(), incomplete)


def hosts(incomplete: str) -> list[str]:
    return _names(lambda client: client.hosts(), incomplete)


def images(incomplete: str) -> list[str]:
    return _names(lambda client: client.images(), incomplete)


def networks(ctx: typer.Context, incomplete: str) -> list[str]:
    return _scoped(ctx, lambda client: client.networks(), incomplete)


def volumes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _scoped(ctx, lambda client: client.volumes(), incomplete)


def profiles(incomplete: str) -> list[str]:
    return _names(lambda client: client.profiles(), incomplete)


def offerings(incomplete: str) -> list[str]:
    return _names(lambda client: client.offerings(), incomplete)


def tenants(incomplete: str) -> list[str]:
    return _names(lambda client: client.tenants(), incomplete)


def operations(incomplete: str) -> list[str]:
    return _names(lambda client: client.operations(beginning=incomplete or None), incomplete, "id")
