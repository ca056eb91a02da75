# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl audit …``"""

from __future__ import annotations

import json
import re
from typing import Annotated, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.clock import now
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, Listing, age, field, show_newest, time
from orchestrator.cli.tree import new_group
from orchestrator.core.errors import Fatal, InvalidInput, NotFound, Reason
from orchestrator.core.units import parse_duration
from orchestrator.core.vms.lease import MAX_LEASE_S, parse_moment, show_moment

app = new_group("Who did or wanted what, refusals too.")


def _who(actor: str) -> str:
    """What people call it first, as there may be no room for all: ``ci (token:3f2a)`` of ``token:3f2a (ci)``."""
    identity, named, name = actor.removesuffix(")").partition(" (")
    return f"{name} ({identity})" if named else actor


_WHEN: Final = " 2h is two hours ago; or a moment, 2026-12-01T10:00Z."


_BEGINS_WITH_YEAR: Final = re.compile(r"[0-9]{4}-")


def _moment(when: str | None, field_name: str) -> str | None:
    """As the API takes it; of how long ago that was too."""
    if when is None:
        return None
    if _BEGINS_WITH_YEAR.match(when):
        parse_moment(when, field=field_name)
        return when
    try:
        return show_moment(now() - parse_duration(when, field=field_name, at_most_s=MAX_LEASE_S))
    except InvalidInput as error:
        raise InvalidInput(error.code, error.message, hint=f"{error.hint}; or a moment: 2026-12-01T10:00Z") from error


COLUMNS: Final = (
    field("NUMBER", "sequence", Fit.WHOLE),
    age("at"),
    time("AT", "at", wide=True),
    Column("WHO", lambda row: _who(shown(row["actor"]))),
    field("FROM", "source", Fit.WHOLE, wide=True),
    field("WITH", "interface", Fit.WHOLE, wide=True),
    field("CLIENT", "user_agent", wide=True),
    field("WHAT", "action", Fit.WRAP),
    field("SUBJECT", "subject", Fit.WRAP),
    field("OUTCOME", "outcome", Fit.WRAP),
)


@app.command("list")
def list_records(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="At most so many.")] = 100,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Only those before this number.")] = None,
    who: Annotated[
        str | None, typer.Option("--who", help="Only by this actor; of a token, its id or name will do.")
    ] = None,
    about: Annotated[str | None, typer.Option("--about", metavar="SUBJECT", help="Only about this.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="WHEN", help="Only from then on." + _WHEN)] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only before then." + _WHEN)] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False,
    sort: Sort = None,
) -> None:
    """List audit records, newest first."""
    client = session_of(ctx).client
    only = {"since": _moment(since, "since"), "until": _moment(until, "until"), "refused": "true" if refused else None}
    records = client.audit(limit if sort is None else None, before, actor=who, subject=about, **only)
    listing = Listing(columns=COLUMNS, none="no records", output=format_of(ctx), sort=sort)
    show_newest(records, client.connection.total, limit, listing)


@app.command("show")
def show_record(
    ctx: typer.Context,
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="As 'audit list' shows it.")],
) -> None:
    """Show one audit record."""
    records = session_of(ctx).client.audit(1, number + 1)
    if not records or records[0]["sequence"] != number:
        raise NotFound("audit.unknown", f"there is no audit record {number}", hint="'vgpuctl audit list' shows them")
    record = records[0]
    pairs = [("number", str(number)), ("at", show_time(record["at"])), ("who", shown(record["actor"]))]
    pairs += [("from", shown(record["source"])), ("with", shown(record["interface"]))]
    pairs += [("client", shown(record["user_agent"])), ("site", shown(record["site"]))]
    pairs += [("what", shown(record["action"])), ("subject", shown(record["subject"]))]
    show(record, format_of(ctx), lambda: render_details([*pairs, ("outcome", shown(record["outcome"]))]))


@app.command("export")
def export(
    ctx: typer.Context,
    after: Annotated[int, typer.Option("--after", min=0, help="Only those after this number.")] = 0,
) -> None:
    """Print all records as JSON, one a line, oldest first."""
    for record in session_of(ctx).client.export_audit(after):
        print(json.dumps(record))


@app.command("verify")
def verify(
    ctx: typer.Context,
    head: Annotated[
        str | None,
        typer.Option("--since", "--head", help="A head that an earlier check printed and you noted elsewhere."),
    ] = None,
) -> None:
    """Check that no record was changed, put in or removed. Fails when one was.

    Without --since the server looks for the head that it has written down itself.
    """
    verdict = session_of(ctx).client.verify_audit(head)
    if verdict["problems"]:
        reasons = tuple(Reason(code="audit.broken", message=problem) for problem in verdict["problems"])
        raise Fatal(
            "audit.broken",
            "the audit is not what was sealed",
            hint="somebody wrote to the database directly; compare it with a backup",
            reasons=reasons,
        )
    show(
        verdict,
        format_of(ctx),
        lambda: render_details(
            [
                ("sealed", shown(verdict["sealed"])),
                ("not sealed yet", shown(verdict["unsealed"])),
                ("head", shown(verdict["head"])),
            ]
        ),
    )
