# SPDX-License-Identifier: Apache-2.0
"""Descriptions and labels of tenants, networks, volumes and images: as they are typed and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from orchestrator.cli.output import shown
from orchestrator.cli.table import Column, Fit
from orchestrator.core.errors import InvalidInput
from orchestrator.core.labels import parse_changes, show_labels

SAID: Final = (
    Column("LABELS", lambda row: show_labels(row["labels"]), Fit.WRAP, wide=True),
    Column("DESCRIPTION", lambda row: shown(row["description"]), Fit.WRAP, wide=True),
)


def said_by(description: str | None, label: Sequence[str] | None, unlabel: Sequence[str] | None) -> dict[str, object]:
    """The body that says it, empty where nothing was. :raises InvalidInput: ``label.…``"""
    labels = parse_changes(label or (), unlabel or ())
    changes: dict[str, object] = {} if description is None else {"description": description}
    return changes | ({"labels": labels} if labels else {})


def need_something(changes: Mapping[str, object], also: str = "") -> None:
    """:raises InvalidInput: ``cli.nothing_to_set``"""
    if not changes:
        hint = f"give --description, --label{also} or --unlabel"
        raise InvalidInput("cli.nothing_to_set", "nothing is to be set", hint=hint)


def need_any(changes: Mapping[str, object], command: str) -> None:
    """The same of a command that sets much else. :raises InvalidInput: ``cli.nothing_to_set``"""
    if not changes:
        raise InvalidInput("cli.nothing_to_set", "nothing is to be set", hint=f"run 'vgpuctl {command} --help'")


def something_said(
    description: str | None, label: Sequence[str] | None, unlabel: Sequence[str] | None
) -> dict[str, object]:
    """The same where there is nothing else to say. :raises InvalidInput: ``label.invalid``, ``cli.nothing_to_set``"""
    changes = said_by(description, label, unlabel)
    need_something(changes)
    return changes


def said_of(thing: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lines of details; none of what nobody has said."""
    pairs = [("description", shown(thing["description"])), ("labels", show_labels(thing["labels"]))]
    return [(name, text) for name, text in pairs if thing[name]]
