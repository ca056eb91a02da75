# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl doctor``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import hosts
from orchestrator.cli.parameters import Sort
from orchestrator.cli.session import Format, Output, session_of
from orchestrator.cli.table import Column, Fit, field, show_list

DIFFERENCES_EXIT: Final = 3
"""As for a plan that found something to do."""


def _repair(finding: Mapping[str, Any]) -> str:
    """Eight digits of an operation are enough for every command that takes one; ``-o json`` has all."""
    if finding["operation"] is not None:
        return f"begun: {finding['operation'][:8]}"
    if finding["repair"] is None:
        return "none"
    return "by itself" if finding["automatic"] else "--repair"


COLUMNS: Final = (
    field("HOST", "host", Fit.WHOLE),
    field("SUBJECT", "subject", Fit.WRAP),
    field("CODE", "code", Fit.WHOLE, spare=True),
    field("OBSERVED", "observed", spare=True),
    field("WHOSE", "whose", spare=True),
    Column("REPAIR", _repair),
    field("WHY", "reason", Fit.WRAP),
)


def doctor(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="Only this host.", autocompletion=hosts)] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Begin all repairs, also those that are not done by themselves.")
    ] = False,
    sort: Sort = None,
    output: Output = Format.TABLE,
) -> None:
    """Tell what differs from what is wanted; repair it.

    Every host is looked at first. Exit code 3: something differs.
    """
    client = session_of(ctx).client
    found = client.observe_findings(host)
    if repair and found:
        client.repair_findings(host)
        found = client.findings(host)
    show_list(found, COLUMNS, output, "nothing differs", sort)
    if found:
        raise typer.Exit(DIFFERENCES_EXIT)
