# SPDX-License-Identifier: Apache-2.0
"""Whose VM, network or volume a name means: ``NAME`` of the tenant that the command is about, or ``TENANT/NAME``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import typer

from orchestrator.cli.session import CliSession
from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.core.names import check_name, name_or_id

_TENANT: Final = "vgpuctl.tenant"
"""In click's context: what ``--tenant`` or a name has said. The session has it for the hint of a failure."""
_LISTS: Final[Mapping[str, Callable[[Any], Iterable[Mapping[str, Any]]]]] = {
    "vm": lambda client: client.vms(),
    "network": lambda client: client.networks(),
    "volume": lambda client: client.volumes(),
    "group": lambda client: client.security_groups(),
}
"""What the caller may know of."""
_NOUNS: Final = {"vm": "VM", "group": "security group", "network": "network", "volume": "volume"}


def scoped_name(ctx: typer.Context, text: str, what: str) -> str:
    """The name alone; its tenant is then that of the command.

    :raises InvalidInput: ``….name_invalid``; ``cli.two_tenants``: another tenant was named before
    """
    tenant, slash, name = text.rpartition("/")
    if slash and any(parameter.name == "tenant" for parameter in ctx.command.params):
        note_tenant(ctx, check_name(tenant, what="tenant"))
        text = name
    checked = name_or_id(text, what=what)
    session = ctx.find_root().obj
    if isinstance(session, CliSession):
        session.named.setdefault(what, []).append(checked)
    return checked


def note_tenant(ctx: typer.Context, tenant: str) -> None:
    """:raises InvalidInput: ``cli.two_tenants``"""
    before = ctx.meta.setdefault(_TENANT, tenant)
    if before != tenant:
        raise InvalidInput(
            "cli.two_tenants", f"{before} and {tenant} are two tenants", hint="a command is about things of one tenant"
        )
    session = ctx.find_root().obj
    if isinstance(session, CliSession):
        session.named_tenant = tenant


def noted_tenant(ctx: typer.Context) -> str | None:
    """What names have said; None: nothing."""
    tenant = ctx.meta.get(_TENANT)
    return None if tenant is None else str(tenant)


def with_owners(error: VgpuctlError, session: CliSession) -> VgpuctlError:
    """An error about a name that the tenant has not says in its hint which tenants have it, or that two names were
    typed the other way round."""
    what, _, how = error.code.partition(".")
    if how != "unknown" or what not in _LISTS or not session.is_connected:
        return error
    names = [name for name in session.named.get(what, ()) if repr(name) in error.message]
    if not names:
        return error
    try:
        rows = list(_LISTS[what](session.client))
        swapped = _swapped(what, names[0], rows, session)
    except VgpuctlError:
        return error
    if swapped is not None:
        return type(error)(error.code, error.message, hint=swapped, reasons=error.reasons)
    owners = sorted({str(row["tenant"]) for row in rows if row["name"] == names[0] and row["tenant"] is not None})
    if not owners:
        return error
    have = f"{' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} {names[0]}"
    hint = f"{have}: --tenant {owners[0]}, or {owners[0]}/{names[0]}"
    return type(error)(error.code, error.message, hint=hint, reasons=error.reasons)


def _swapped(what: str, name: str, rows: Iterable[Mapping[str, Any]], session: CliSession) -> str | None:
    """The hint where ``name`` is not of kind ``what``, whose list is ``rows``, but of the kind that another was typed
    as, which is of this one: ``volume attach VM VOLUME``."""
    for kind, (typed, *_) in session.named.items():
        if kind != what and any(row["name"] == typed for row in rows):
            others = _LISTS[kind](session.client)
            if any(row["name"] == name for row in others):
                return f"{name} is a {_NOUNS[kind]} and {typed} a {_NOUNS[what]}: type them the other way round"
    return None
