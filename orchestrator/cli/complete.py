# SPDX-License-Identifier: Apache-2.0
"""Names that the shell completes. Asks a server that runs; a press of Tab never starts one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import typer

from orchestrator.cli.session import CliSession
from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.contexts import load, path
from orchestrator.client.location import state_directory
from orchestrator.client.token import token_headers
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.guest.settings import ROLES
from orchestrator.core.tenancy.quota import RESOURCES
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

_PLAIN: Final = re.compile(r"(?:[a-z0-9-]{1,63}/)?[A-Za-z0-9][A-Za-z0-9 ._+-]{0,99}")
"""A shell evaluates what it completes."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def _names(
    ask: Callable[[Client], Iterable[Mapping[str, Any]]],
    incomplete: str,
    key: str = "name",
    plain: re.Pattern[str] = _PLAIN,
) -> list[str]:
    try:
        connection = connect_running(state_directory())
        rows = ask(Client(connection)) if connection is not None else ()
        names = {str(row[key]) for row in rows if str(row[key]).startswith(incomplete)}
        return sorted(name for name in names if plain.fullmatch(name))
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


def security_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    return _scoped(ctx, lambda client: client.security_groups(), incomplete)


def floating_addresses(incomplete: str) -> list[str]:
    return _names(
        lambda client: ({"name": str(each["address"])} for each in client.floating_addresses()), incomplete
    )  # fmt: skip


def volumes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _scoped(ctx, lambda client: client.volumes(), incomplete)


def pools(incomplete: str) -> list[str]:
    return _names(lambda client: client.pools(), incomplete)


def profiles(incomplete: str) -> list[str]:
    return _names(lambda client: client.profiles(), incomplete)


def offerings(incomplete: str) -> list[str]:
    return _names(lambda client: client.offerings(), incomplete)


def tenants(incomplete: str) -> list[str]:
    return _names(lambda client: client.tenants(), incomplete)


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """What ``--sort`` takes: headers of the command's list; ``-`` before one turns it round."""
    module = inspect.unwrap(ctx.command.callback).__globals__ if ctx.command.callback is not None else {}
    turned = "-" if incomplete.startswith("-") else ""
    headers = (str(column.header).lower().replace(" ", "-") for column in module.get("COLUMNS", ()))
    return [f"{turned}{header}" for header in headers if f"{turned}{header}".startswith(incomplete)]


def gpus(ctx: typer.Context, incomplete: str) -> list[str]:
    """PCI addresses; of the host that was named before."""
    host = ctx.params.get("host") or ctx.params.get("on_host")
    return _names(
        lambda client: (row for row in client.gpus() if host in {None, row["host"]}), incomplete, "address", _ADDRESS
    )


def contexts(incomplete: str) -> list[str]:
    try:
        known = load(path()).contexts
    except VgpuctlError:
        return []
    return sorted(name for name in known if name.startswith(incomplete))


def operations(incomplete: str) -> list[str]:
    return _names(lambda client: client.operations(beginning=incomplete or None), incomplete, "id")


def _words(known: Iterable[str]) -> Callable[[str], list[str]]:
    words = tuple(known)
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


POLICY: Final = (
    "lease",
    "max-lease",
    "disk-grace",
    "max-priority",
    "preempt",
    "isolation",
    "encryption",
    "maintenance",
)
"""As cli/commands/policy.py takes them."""
BY_PARAMETER: Final[Mapping[str, Callable[..., list[str]]]] = {
    "tenant": tenants,
    "sort": columns,
    "gpu": gpus,
    "address": gpus,
    "gpus": gpus,
    "provision": _words(ROLES),
    "limits": _words(f"{name}=" for name in RESOURCES),
    "values": _words(f"{name}=" for name in POLICY),
}
"""For a parameter of that name which names no way itself."""


def complete_parameters(command: Any) -> None:
    """Of the command and those below it."""
    for parameter in command.params:
        ask = BY_PARAMETER.get(parameter.name)
        if ask is not None and parameter._custom_shell_complete is None:
            with_context = "ctx" in inspect.signature(ask).parameters
            parameter._custom_shell_complete = _asked(ask, with_context=with_context)
    for child in getattr(command, "commands", {}).values():
        complete_parameters(child)


def _asked(ask: Callable[..., list[str]], *, with_context: bool) -> Callable[[Any, Any, str], list[str]]:
    if with_context:
        return lambda ctx, _parameter, incomplete: ask(ctx, incomplete)
    return lambda _ctx, _parameter, incomplete: ask(incomplete)
