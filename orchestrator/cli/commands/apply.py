# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl plan|diff|apply -f FILE``: a file says what there should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orchestrator.cli.confirm import Yes, confirm_picked
from orchestrator.cli.files import files_of, read_text
from orchestrator.cli.output import colour, printable, show, shown, width
from orchestrator.cli.parameters import ListTenant
from orchestrator.cli.session import CliSession, Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, field, list_lines, render_table
from orchestrator.core.errors import InvalidInput, Reason, VgpuctlError
from orchestrator.core.manifest import Change, FieldChange, Manifest
from orchestrator.core.manifest_changes import changes

if TYPE_CHECKING:
    from orchestrator.cli.manifest.carry_out import ChangeOutcome

DIFFERENT: Final = 3
"""Exit code of ``plan`` and ``diff`` when something has to change."""
MAX_FILE_BYTES: Final = 1024 * 1024
MAX_PARALLEL: Final = 64

Files = Annotated[
    list[Path],
    typer.Option(
        "--file",
        "-f",
        help="YAML file of tenants, offerings, networks, images and VMs, or a directory of them; "
        "- for standard input; may be repeated.",
    ),
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Also delete the VMs that this file's label made and that it no longer has.")
]


def _detail(change: dict[str, Any]) -> str:
    if change["action"] in {"add", "delete"}:
        return ""
    if change["reason"] is not None:
        return shown(change["reason"])
    return "; ".join(
        f"{field['field']} {_value(field['there'])} → {_value(field['wanted'])}" for field in change["fields"]
    )


def _value(text: str | None) -> str:
    return "''" if text == "" else shown(text)


COLUMNS: Final = (
    field("ACTION", "action"),
    field("KIND", "kind"),
    field("NAME", "name", Fit.WHOLE),
    Column("CHANGE", lambda change: _detail(dict(change)), Fit.WRAP),
)


_NAMED: Final = (field("NAME", "name"), field("KIND", "kind"), field("ACTION", "action"))
_AS_WANTED: Final = "everything is as it should be"


def _by_row(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], output: Format, lines: Callable[[], Sequence[str]]
) -> Sequence[str]:
    """Names or CSV where they are asked for, else ``lines``."""
    return list_lines(rows, columns, output, "") if output in {Format.NAME, Format.CSV} else lines()


def plan(ctx: typer.Context, file: Files, prune: Prune = False) -> None:
    """Show what apply would do; exit code 3 when it would do something."""
    changes = _planned(session_of(ctx), file, prune=prune)
    rows = [asdict(change) for change in changes]
    show(
        rows,
        format_of(ctx),
        lambda: _by_row(
            rows,
            (*_NAMED, COLUMNS[-1]),
            format_of(ctx),
            lambda: [*render_table(rows, COLUMNS, width()), "", _summary(changes)] if rows else [_AS_WANTED],
        ),
    )
    raise typer.Exit(DIFFERENT if changes else 0)


def diff(ctx: typer.Context, file: Files, prune: Prune = False) -> None:
    """Show every value that is not as a file says; exit code 3 when there is one."""
    changes = _planned(session_of(ctx), file, prune=prune)
    if changes or format_of(ctx) not in {Format.TABLE, Format.WIDE}:
        show([asdict(change) for change in changes], format_of(ctx), lambda: _diff_lines(changes))
    raise typer.Exit(DIFFERENT if changes else 0)


def apply(
    ctx: typer.Context,
    file: Files,
    prune: Prune = False,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=MAX_PARALLEL, help="VMs worked on at the same time.")
    ] = 8,
    yes: Yes = False,
) -> None:
    """Make everything as a file says. A second time nothing changes. Asks before VMs are deleted."""
    from orchestrator.cli.manifest.carry_out import CarryOut

    session = session_of(ctx)
    manifest, changes = _changes(session, file, prune=prune)
    deleted = [change.name for change in changes if change.action == "delete"]
    if deleted:
        confirm_picked("delete VM" if len(deleted) == 1 else "delete VMs", deleted, yes=yes)
    outcomes = CarryOut(session, manifest, parallel).run(changes)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    rows = [_row(outcome) for outcome in outcomes]
    columns = (*_NAMED, field("DONE", "done"))
    show(rows, session.format, lambda: _by_row(rows, columns, session.format, lambda: [_total(outcomes, len(failed))]))
    if failed:
        raise _partial(outcomes, failed)


def export(ctx: typer.Context, tenant: ListTenant = None) -> None:
    """Print what exists as a file for apply.

    User data, images' sources and adopted VMs are not in it, nor provider networks, joins of networks and floating
    addresses, which are named on stderr.
    """
    from orchestrator.cli.manifest.export import exported, left_out

    client = session_of(ctx).client
    manifest = exported(client, tenant)
    for line in left_out(client, tenant):
        typer.echo(printable(line), err=True)
    show(manifest, _as_file(ctx, Format.YAML), list)


def schema(ctx: typer.Context) -> None:
    """Print the JSON schema of the file, for editors."""
    from orchestrator.catalogue.manifest_forms import ManifestForm

    show(ManifestForm.model_json_schema(), _as_file(ctx, Format.JSON), list)


def _as_file(ctx: typer.Context, form: Format) -> Format:
    """A file is no table."""
    return form if format_of(ctx) is Format.TABLE else format_of(ctx)


def _planned(session: CliSession, files: Sequence[Path], *, prune: bool) -> tuple[Change, ...]:
    from orchestrator.cli.manifest.refused import with_refusals

    manifest, planned = _changes(session, files, prune=prune)
    return with_refusals(session.client, manifest, planned)


def _changes(session: CliSession, files: Sequence[Path], *, prune: bool) -> tuple[Manifest, tuple[Change, ...]]:
    from orchestrator.catalogue.manifest_file import read_manifests
    from orchestrator.cli.manifest.observed import observe, with_images
    from orchestrator.cli.manifest.references import check_references

    paths = files_of(files, what="file", suffixes=(".yaml", ".yml"))
    manifest = read_manifests([(path, read_text(path, what="file", max_bytes=MAX_FILE_BYTES)) for path in paths])
    if prune and manifest.label is None:
        raise InvalidInput(
            "manifest.no_label",
            "--prune needs a label in the file",
            hint="write 'label: NAME' at its top; only VMs that were made under it are ever deleted",
        )
    existing = observe(session.client, manifest)
    manifest = with_images(session.client, manifest, existing)
    check_references(session.client, manifest, existing)
    return manifest, changes(manifest, existing, prune=prune)


def _summary(changes: Sequence[Change]) -> str:
    counts = Counter(change.action for change in changes)
    return ", ".join(f"{count} to {action}" for action, count in counts.items())


def _diff_lines(changes: Sequence[Change]) -> list[str]:
    lines = []
    for change in changes:
        mark = {"add": "+", "delete": "-", "refuse": "!"}.get(change.action, "~")
        lines.append(colour(f"{mark} {shown(change.kind)} {shown(change.name)}", "bold"))
        if change.reason is not None:
            lines.append(f"    {shown(change.reason)}")
        lines += [line for field in change.fields for line in _field_lines(field)]
    return lines


def _field_lines(one: FieldChange) -> list[str]:
    lines = []
    if one.there is not None:
        lines.append(colour(f"    - {one.field}: {_value(one.there)}", "red"))
    if one.wanted is not None:
        lines.append(colour(f"    + {one.field}: {_value(one.wanted)}", "green"))
    return lines


def _row(outcome: ChangeOutcome) -> dict[str, object]:
    error = outcome.error
    return {
        "kind": outcome.change.kind,
        "name": outcome.change.name,
        "action": outcome.change.action,
        "done": error is None,
        "error": None if error is None else {"code": error.code, "message": error.message, "hint": error.hint},
    }


def _total(outcomes: Sequence[ChangeOutcome], failed: int) -> str:
    if not outcomes:
        return _AS_WANTED
    return f"{len(outcomes) - failed} of {len(outcomes)} changes made"


def _partial(outcomes: Sequence[ChangeOutcome], failed: Sequence[ChangeOutcome]) -> VgpuctlError:
    """The family of the first failure decides the exit code."""
    reasons = tuple(
        Reason(
            code=outcome.error.code,
            message=outcome.error.message,
            subjects=(f"{outcome.change.kind} {outcome.change.name}",),
        )
        for outcome in failed
        if outcome.error is not None
    )
    first = failed[0].error
    family = InvalidInput if first is None else type(first)
    return family(
        "manifest.partial",
        f"{len(failed)} of {len(outcomes)} changes could not be made",
        hint=f"{'' if len(failed) == len(outcomes) else 'the others are made; '}correct what is said and apply again",
        reasons=reasons,
    )
