# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl token …``"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import seconds_since, seconds_until, show_age, show_end, show_time
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort, own_tenant_or_everywhere, tenant_if_named
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, time
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json
from orchestrator.core.errors import Denied, InvalidInput, NotFound, why_unwritable
from orchestrator.core.tenancy.access import EVERYWHERE, Role
from orchestrator.core.tenancy.tenant import MAX_TOKEN_LIFETIME_S
from orchestrator.core.units import parse_duration

app = new_group("Tokens that act in a tenant for programs and people.")


def _end(token: Mapping[str, Any]) -> str:
    return "revoked" if token["revoked_at"] is not None else show_end(token["expires_at"])


def _seconds_left(token: Mapping[str, Any]) -> float:
    """One that is revoked is over first of all."""
    if token["revoked_at"] is not None:
        return -inf
    return inf if token["expires_at"] is None else seconds_until(token["expires_at"])


def _used(token: Mapping[str, Any]) -> str:
    return "never" if token["last_used_at"] is None else f"{show_age(token['last_used_at'])} ago"


COLUMNS: Final = (
    field("ID", "id", Fit.WHOLE),
    field("NAME", "name", Fit.WHOLE),
    field("TENANT", "tenant", Fit.WHOLE),
    field("ROLE", "role", Fit.WHOLE),
    Column("EXPIRES", _end, Fit.WHOLE, rank=_seconds_left),
    Column(
        "USED",
        _used,
        Fit.WHOLE,
        spare=True,
        rank=lambda token: seconds_since(token["last_used_at"]) or inf,
        exact=lambda token: token["last_used_at"],
    ),
    age(),
    field("MADE BY", "made_by", spare=True),
    time("EXPIRES AT", "expires_at", wide=True),
    time("REVOKED AT", "revoked_at", wide=True),
)


def _anywhere(ctx: typer.Context, text: str | None) -> str | None:
    return text if text == EVERYWHERE else tenant_if_named(ctx, text)


Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the token, as 'token list' shows it.")]
Anywhere = Annotated[
    str | None, typer.Option("--tenant", help="Only this tenant's; '*': those that act everywhere.", callback=_anywhere)
]
Place = Annotated[
    str, typer.Option("--tenant", help="Where it acts; '*' for everywhere.", callback=own_tenant_or_everywhere)
]


@app.command("create")
def create(
    ctx: typer.Context,
    tenant: Place = "default",
    role: Annotated[Role, typer.Option("--role", help="What it may do.")] = "tenant-user",
    lifetime: Annotated[
        str | None, typer.Option("--lifetime", help="For example 8h or 30d; otherwise until it is revoked.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What it is for, for 'token list'.")] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write it into this new file that only you can read, and not here.")
    ] = None,
) -> None:
    """Create a token. It is shown this once; VGPUCTL_TOKEN_FILE names the file a command takes it from."""
    seconds = None if lifetime is None else parse_duration(lifetime, field="lifetime", at_most_s=MAX_TOKEN_LIFETIME_S)
    wanted: dict[str, object] = {"tenant": tenant, "role": role, "lifetime_s": seconds, "name": name}
    client = session_of(ctx).client
    if save is None:
        made = client.create_token(wanted)
        show(made, format_of(ctx), lambda: [made["token"], "", *_lines(made["about"])])
        return
    descriptor = _new_file(save)
    with os.fdopen(descriptor, "w") as stream:
        try:
            made = client.create_token(wanted)
        except BaseException:
            save.unlink(missing_ok=True)
            raise
        stream.write(f"{made['token']}\n")
    show(made["about"], format_of(ctx), lambda: _lines(made["about"]))


def _new_file(path: Path) -> int:
    """Made before the token: one that cannot be written down must not be made."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "token.unwritable",
            f"cannot make the file {str(path)!a}: {why_unwritable(error)}",
            hint="name one that does not exist yet",
        ) from error


def _lines(token: Json, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    return render_details(
        [
            ("id", shown(token["id"])),
            ("name", shown(token["name"])),
            ("tenant", shown(token["tenant"])),
            ("role", shown(token["role"])),
            ("expires", "never" if token["expires_at"] is None else show_time(token["expires_at"])),
            *more,
        ]
    )


@app.command("list")
def list_tokens(ctx: typer.Context, tenant: Anywhere = None, sort: Sort = None) -> None:
    """List tokens by age, revoked ones too: a tenant's, or all that you see. Themselves nobody can show."""
    show_list(_known(session_of(ctx), tenant), COLUMNS, format_of(ctx), "no tokens", sort)


def _known(session: CliSession, tenant: str | None) -> Sequence[Json]:
    """None: of all tenants, and of everywhere, that tell the caller. :raises Denied: none does"""
    client, chosen = session.client, tenant or session.chosen_tenant or session.only_tenant
    if chosen is not None:
        return client.tokens(chosen)
    tokens: list[Json] = []
    refused, answered = None, False
    for place in (EVERYWHERE, *(str(tenant["name"]) for tenant in client.tenants())):
        try:
            tokens += client.tokens(place)
            answered = True
        except (Denied, NotFound) as error:  # one may be deleted meanwhile
            refused = error
    if refused is not None and not answered:
        raise refused
    return sorted(tokens, key=itemgetter("created_at"))


def _found(session: CliSession, tenant: str | None, token_id: str) -> Json:
    """:raises NotFound: ``token.unknown``"""
    token = next((token for token in _known(session, tenant) if token["id"] == token_id), None)
    if token is None:
        where = "" if tenant is None else f" of {tenant}"
        hint = "'vgpuctl token list' shows them"
        raise NotFound("token.unknown", f"no token{where} has the id {ascii(token_id)[:20]}", hint=hint)
    return token


@app.command("show")
def show_token(ctx: typer.Context, token_id: Id, tenant: Anywhere = None) -> None:
    """Show one token: whose it is and whether it is good. Not the token itself."""
    token = _found(session_of(ctx), tenant, token_id)
    show(token, format_of(ctx), lambda: _lines(token, _more(token)))


def _more(token: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("made by", shown(token["made_by"])),
        ("created", show_time(token["created_at"])),
        ("used", _used(token)),
        ("revoked", "no" if token["revoked_at"] is None else show_time(token["revoked_at"])),
    ]


@app.command("revoke")
def revoke(ctx: typer.Context, token_id: Id, tenant: Anywhere = None, yes: Yes = False) -> None:
    """End a token at once and for good."""
    token = _found(session_of(ctx), tenant, token_id)
    confirm("revoke token", [token_id], yes=yes)
    session_of(ctx).client.revoke_token(token_id, token["tenant"])
    show({"id": token_id, "revoked": True}, format_of(ctx), lambda: [f"token {shown(token_id)} is revoked"])
