# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl operation …``"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.ages import seconds_of, show_time, waits_for
from orchestrator.cli.complete import operations
from orchestrator.cli.output import render_details, show, shown, width
from orchestrator.cli.parameters import ListTenant, Sort
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, session_of
from orchestrator.cli.table import Column, Fit, Listing, age, field, render_table, show_newest
from orchestrator.cli.tree import new_group
from orchestrator.cli.watch import View, Watch, list_view, show_view
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import is_uuid
from orchestrator.core.operation import FINISHED, OperationState, check_kind, unknown_operation

app = new_group("Watch operations; ways out when one is stuck.")

Id = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the operation, or how it begins.", autocompletion=operations)
]


_BEGINNING: Final = re.compile("[0-9a-f-]{1,35}", re.ASCII | re.IGNORECASE)
SHORT_ID: Final = 8
"""Digits that people copy; every command takes as many as tell operations apart."""


def _state_of(operation: Mapping[str, Any]) -> str:
    """With the step that it is in, or what it waits for."""
    waits = waits_for(operation)
    step = next((step["title"] for step in operation.get("steps", ()) if step["state"] == "running"), None)
    more = "" if step is None else f": {shown(step)}"
    return f"{shown(operation['state'])}{more}" if waits is None else f"{shown(operation['state'])}, waits for {waits}"


COLUMNS: Final = (
    field("OPERATION", "id", Fit.WHOLE, wide=True),
    Column("ID", lambda operation: shown(operation["id"])[:SHORT_ID], Fit.WHOLE),
    field("KIND", "kind"),
    field("SUBJECT", "subject_name", Fit.WRAP),
    Column("STATE", _state_of, Fit.WHOLE),
    age(),
    field("CREATED", "created_at", wide=True),
    field("SUBJECT ID", "subject", wide=True),
)


def _seconds(step: Mapping[str, Any]) -> float | None:
    return seconds_of(step, None)


def _took(step: Mapping[str, Any]) -> str:
    seconds = _seconds(step)
    return "-" if seconds is None else f"{seconds:.1f} s"


STEP_COLUMNS: Final = (
    field("STEP", "title", Fit.WRAP),
    field("STATE", "state", Fit.WHOLE),
    Column("TOOK", _took, exact=_seconds),
    field("MESSAGE", "message", Fit.WRAP),
)


def full_id(session: CliSession, text: str) -> str:
    """Of its first digits.

    :raises NotFound: ``operation.unknown``; :raises InvalidInput: ``operation.ambiguous``
    """
    if is_uuid(text.lower()):
        return text.lower()
    if not _BEGINNING.fullmatch(text):
        return text
    matches = [str(operation["id"]) for operation in session.client.operations(limit=2, beginning=text.lower())]
    if not matches:
        raise unknown_operation(text)
    if len(matches) > 1:
        raise InvalidInput("operation.ambiguous", f"several operations begin with {text}", hint="give more digits")
    return matches[0]


@dataclass
class _Newest:
    """Tells those that newer ones pushed out of a list of at most ``limit`` from those that are gone."""

    limit: int
    seen: dict[str, datetime] = field_of(default_factory=dict)

    def pushed_out(self, operations: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """Of those shown the last time, by id: older than all that a full list has room for."""
        before, self.seen = (
            self.seen,
            {str(operation["id"]): datetime.fromisoformat(operation["created_at"]) for operation in operations},
        )
        if len(operations) < self.limit:
            return frozenset()
        oldest = min(self.seen.values())
        return frozenset(name for name, created in before.items() if created <= oldest and name not in self.seen)


@app.command("list")
def list_operations(
    ctx: typer.Context,
    active: Annotated[bool, typer.Option("--active", help="Only those that have not ended, or are stuck.")] = False,
    about: Annotated[
        str | None, typer.Option("--about", metavar="SUBJECT", help="Only about this host, or VM as TENANT/NAME.")
    ] = None,
    state: Annotated[OperationState | None, typer.Option("--state", help="Only those in this state.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only of this kind, like create_vm.")] = None,
    tenant: ListTenant = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000_000, help="At most so many, before others are left out.")
    ] = 100,
    sort: Sort = None,
    watch: Watch = False,
) -> None:
    """List operations, newest first."""
    session = session_of(ctx)
    only = {
        "subject": about,
        "state": state,
        "kind": None if kind is None else check_kind(kind),
        "tenant": tenant,
    }
    newest = _Newest(limit)
    listing = Listing(columns=COLUMNS, none="no operations", output=session.format, sort=sort)

    def read_view() -> View:
        operations = session.client.operations(active=active, limit=limit, **only)
        view = list_view(operations, listing, lambda operation: str(operation["id"]))
        return replace(view, pushed_out=newest.pushed_out(operations))

    if watch:
        show_view(session, read_view, watch=True, nouns=("operation", "step"), tenant=tenant)
        return
    operations = session.client.operations(active=active, limit=limit if sort is None else None, **only)
    show_newest(operations, session.client.connection.total, limit, listing)


REPORTED_S: Final = 5.0
"""What a step reports while it goes on is no event: a play has a hundred tasks."""


@app.command("show")
def show_operation(ctx: typer.Context, operation_id: Id, watch: Watch = False) -> None:
    """Show one operation with its steps. Of a stuck one, what remains; a watched one is shown until it ends."""
    session = session_of(ctx)
    full = full_id(session, operation_id)

    def read_view() -> View:
        operation = session.client.operation(full)
        ended = operation["state"] in FINISHED
        return View(
            data=operation, lines=lambda: details(operation), final=ended, about=frozenset({full}), good_s=REPORTED_S
        )

    show_view(session, read_view, watch=watch, nouns=("operation", "step"))


_WAYS_OUT: Final[Mapping[str, str]] = {
    "cancel": "take it back",
    "retry": "go on from where it stands, or take the rest back",
    "abandon": "after cleaning up by hand",
}


def details(operation: Mapping[str, Any]) -> list[str]:
    pairs = [
        ("id", shown(operation["id"])),
        ("kind", shown(operation["kind"])),
        ("subject", shown(operation["subject_name"])),
        ("state", shown(operation["state"])),
        ("asked by", shown(operation["asked_by"])),
        ("why", shown(operation["why"])),
        ("attempt", shown(operation["attempt"])),
        ("created", show_time(operation["created_at"])),
        ("finished", show_time(operation["finished_at"])),
    ]
    waits = waits_for(operation)
    if waits is not None and operation.get("waits_for_guest"):
        pairs.append(("waits for", f"{waits}; it goes on by itself when that has an address, or was given its time"))
    elif waits is not None:
        pairs.append(("waits for", f"{waits}; it goes on by itself when the host answers again"))
    error = operation["error"]
    if error:
        pairs.append(("error", f"{shown(error.get('message'))} [{shown(error.get('code'))}]"))
        pairs += [(name, shown(error[name])) for name in ("details", "hint") if error.get(name)]
    pairs += [("warning", shown(warning)) for warning in operation["warnings"]]
    pairs += [("remains", shown(item)) for item in operation["remainder"]]
    if operation["state"] == "stuck" or (waits is not None and not operation.get("waits_for_guest")):
        known = [way for way in operation.get("ways_out", ()) if way in _WAYS_OUT]
        pairs += [("way out", f"vgpuctl operation {way} {operation['id']}: {_WAYS_OUT[way]}") for way in known]
    return [*render_details(pairs), "", *render_table(operation["steps"], STEP_COLUMNS, width())]


@app.command("wait")
def wait(ctx: typer.Context, operation_id: Id) -> None:
    """Follow an operation until it is finished; fails when it failed."""
    session = session_of(ctx)
    operation = follow(session, full_id(session, operation_id), joined=True)
    show(operation, session.format, lambda: [f"{shown(operation['kind'])} is done"])


@app.command("retry")
def retry(ctx: typer.Context, operation_id: Id) -> None:
    """A stuck operation: go on from where it stands, or take the rest back."""
    session = session_of(ctx)
    operation = session.client.retry_operation(full_id(session, operation_id))
    show(operation, session.format, lambda: details(operation))


@app.command("abandon")
def abandon(ctx: typer.Context, operation_id: Id) -> None:
    """Release what one holds that is stuck or waits for its host. You cleaned up by hand."""
    session = session_of(ctx)
    operation = session.client.abandon_operation(full_id(session, operation_id))
    show(operation, session.format, lambda: details(operation))


@app.command("cancel")
def cancel(ctx: typer.Context, operation_id: Id) -> None:
    """Stop after the current step and take everything back."""
    session = session_of(ctx)
    operation = session.client.cancel_operation(full_id(session, operation_id))
    show(operation, session.format, lambda: details(operation))
