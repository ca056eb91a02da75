# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl events``"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.commands.vm_views import show_history
from orchestrator.cli.complete import vms
from orchestrator.cli.output import shown
from orchestrator.cli.parameters import ListTenant, Sort, vm_name_if_any
from orchestrator.cli.session import Format, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, time
from orchestrator.core.errors import InvalidInput
from orchestrator.core.event import NOUNS

_MAX_LAST: Final = 1000
"""Of what has happened already; the server gives no more."""
_GAP: Final = "some events are no longer kept: what came between is not told"


def _details(event: Mapping[str, Any]) -> str:
    return shown([f"{key}={value}" for key, value in event["details"].items()])


COLUMNS: Final = (
    time("AT", "at"),
    age("at"),
    field("NOUN", "noun", Fit.WHOLE),
    field("TENANT", "tenant", Fit.WHOLE),
    field("NAME", "name", Fit.WHOLE),
    field("CHANGE", "change", Fit.WHOLE),
    field("STATE", "state", Fit.WHOLE),
    field("HOST", "host", Fit.WHOLE),
    field("SUBJECT", "subject", wide=True),
    Column("MORE", _details, Fit.WRAP),
    field("ID", "id", Fit.WHOLE, wide=True),
)


def events(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a VM, or TENANT/NAME; none: everything that you may know of.",
            autocompletion=vms,
            callback=vm_name_if_any,
            show_default=False,
        ),
    ] = None,
    tenant: ListTenant = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    noun: Annotated[list[str] | None, typer.Option("--noun", metavar="NOUN", help="Only about these.")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="ID", help="Begin after that event.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many that are over.")] = 50,
    sort: Sort = None,
) -> None:
    """What happened to a VM, or in the whole fleet.

    Of a VM, also of a deleted one, what was done to it, newest first; of the fleet everything, oldest first.
    """
    session = session_of(ctx)
    if name is not None and not (follow or noun or after or as_json):
        show_history(session.client, name, tenant or session.own_tenant, limit, sort, session.format)
        return
    unknown = set(noun or ()).difference(NOUNS)
    if unknown:
        raise InvalidInput("cli.usage", f"{min(unknown)[:40]!a} is no noun", hint=f"one of {', '.join(NOUNS)}")
    whose = tenant or (session.chosen_tenant if name is None else session.own_tenant)
    happened = session.client.events(
        after=after, last=min(limit, _MAX_LAST), nouns=noun or (), follow=follow, tenant=whose, name=name
    )
    if follow or as_json:
        _print(happened, as_json=as_json or session.format == Format.JSON)
    else:
        listed = list(happened)
        rows = [event for event in listed if event["noun"] != "gap"]
        if len(rows) < len(listed):
            print(_GAP, file=sys.stderr)
        show_list(rows, COLUMNS, session.format, "nothing has happened yet", sort)


def _print(happened: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    for event in happened:
        print(json.dumps(event) if as_json else _line(event), flush=True)


def _line(event: Mapping[str, Any]) -> str:
    """``2026-12-01T10:00:00Z  vm  red/train  state  running  on gpu-1``"""
    if event["noun"] == "gap":
        return _GAP
    whose = "" if event["tenant"] is None else f"{shown(event['tenant'])}/"
    parts = [shown(event["at"]), shown(event["noun"]), whose + shown(event["name"]), shown(event["change"])]
    parts += [shown(event["state"])] if event["state"] is not None else []
    parts += [f"on {shown(event['host'])}"] if event["host"] is not None else []
    return "  ".join([*parts, *(f"{shown(key)}={shown(value)}" for key, value in event["details"].items())])
