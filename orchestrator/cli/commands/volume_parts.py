# SPDX-License-Identifier: Apache-2.0
"""What commands about data volumes and their snapshots have alike."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.complete import pools, volumes
from orchestrator.cli.output import show
from orchestrator.cli.parameters import pool_name
from orchestrator.cli.progress import follow
from orchestrator.cli.scope import scoped_name
from orchestrator.cli.session import CliSession, Format
from orchestrator.client.connection import Json


def volume_name(ctx: typer.Context, text: str) -> str:
    return scoped_name(ctx, text, "volume")


Name = Annotated[
    str, typer.Argument(help="Name of the volume, or TENANT/NAME.", autocompletion=volumes, callback=volume_name)
]

OfPool = Annotated[
    str | None,
    typer.Option(
        "--pool",
        help="Pool that it lies in, or none; else as its tenant's policy says.",
        autocompletion=pools,
        callback=pool_name,
    ),
]


def finish(session: CliSession, name: str, started: Json, sentence: str, output: Format, *, wait: bool) -> None:
    operation = started["operation"]
    if operation is None:
        show(started, output, lambda: [sentence], name=name)
    elif wait:
        ended = follow(session, operation)
        show(ended, output, lambda: [sentence], name=name)
    else:
        show(started, output, lambda: [f"operation {operation} works on it"], name=name)
