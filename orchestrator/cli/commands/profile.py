# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl profile …``"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import profiles
from orchestrator.cli.group import new_group
from orchestrator.cli.output import printable, render_details, show, shown
from orchestrator.cli.session import Format, Output, session_of
from orchestrator.cli.table import Column, Fit, field, show_list

app = new_group("What --profile takes: offerings, vGPU types, MIG profiles.")


def _gives(profile: Mapping[str, Any]) -> str:
    if profile["gpu_count"]:
        return f"{profile['gpu_count']} whole GPU" + ("s" if profile["gpu_count"] > 1 else "")
    if profile["vgpu_type"]:
        count = profile["vgpu_count"]
        return (f"{count} x " if count > 1 else "") + shown(profile["vgpu_type"])
    return shown(profile["mig_profile"])


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("KIND", "kind", spare=True),
    Column("GIVES", _gives),
    field("FREE", "free"),
    field("HOSTS", "hosts", Fit.WRAP),
)


@app.command("list")
def list_profiles(ctx: typer.Context, output: Output = Format.TABLE) -> None:
    """List offerings and the vGPU types that hosts offer now."""
    show_list(session_of(ctx).client.profiles(), COLUMNS, output, "no profiles")


@app.command("show")
def show_profile(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Any name that --profile takes.", autocompletion=profiles)],
    output: Output = Format.TABLE,
) -> None:
    """Show one profile."""
    profile = session_of(ctx).client.profile(name)
    show(
        profile,
        output,
        lambda: render_details(
            [
                ("name", shown(profile["name"])),
                ("kind", shown(profile["kind"])),
                ("version", shown(profile["version"])),
                ("origin", shown(profile["origin"])),
                ("description", shown(profile["description"])),
                ("gives", _gives(profile)),
                ("GPU models", shown(profile["gpu_models"])),
                ("hosts", shown(profile["hosts"])),
                ("free", shown(profile["free"])),
            ]
        ),
    )


@app.command("validate")
def validate(
    ctx: typer.Context, path: Annotated[Path, typer.Argument(metavar="FILE", help="Offering file.")],
    output: Output = Format.TABLE,
) -> None:  # fmt: skip
    """Check a file of offerings: file, line and reason of every mistake. Needs no server."""
    from orchestrator.catalogue.offering_files import validate_offering_file

    problems = validate_offering_file(path)
    lines = [printable(str(problem)) for problem in problems] or [f"{printable(str(path))} is right"]
    show([asdict(problem) for problem in problems], output, lambda: lines)
    if problems:
        raise typer.Exit(2)
