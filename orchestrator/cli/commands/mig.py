# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl mig …``"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import hosts
from orchestrator.cli.group import new_group
from orchestrator.cli.output import show, shown, width
from orchestrator.cli.session import Format, Output, session_of
from orchestrator.cli.table import Column, Fit, field, render_table
from orchestrator.client.connection import Json

app = new_group("GPU instances of a host's GPUs.")

Host = Annotated[str, typer.Argument(help="Name of the host.", autocompletion=hosts)]

NAME: Final = "current"
"""What the exported configuration is called."""

COLUMNS: Final = (
    field("GPU", "number"),
    field("ADDRESS", "address", Fit.WHOLE),
    field("MIG", "mig"),
    field("INSTANCE", "id"),
    field("PROFILE", "profile", Fit.WHOLE),
    field("SLOTS", "slots"),
    Column("VM", lambda row: shown(row["vm"])),
)


@app.command("show")
def show_instances(ctx: typer.Context, host: Host, output: Output = Format.TABLE) -> None:
    """Show the GPU instances of a host, whoever made them."""
    gpus = _gpus_of(ctx, host)
    show(gpus, output, lambda: render_table(list(rows(gpus)), COLUMNS, width()))


@app.command("export")
def export(
    ctx: typer.Context,
    host: Host,
    output: Output = Format.TABLE,
) -> None:
    """Print a host's GPU instances as a configuration of mig-parted.

    It is called current. GPUs are numbered in PCI order; those without MIG are left out.
    """
    found = entries(_gpus_of(ctx, host))
    show({"version": "v1", "mig-configs": {NAME: found}}, output, lambda: config_lines(found))


def _gpus_of(ctx: typer.Context, host: str) -> list[Json]:
    """In PCI order. :raises NotFound: ``host.unknown``"""
    client = session_of(ctx).client
    client.host(host)
    return sorted((gpu for gpu in client.gpus() if gpu["host"] == host), key=lambda gpu: str(gpu["address"]))


def rows(gpus: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, object]]:
    """A row for each GPU instance, and one for a GPU that has none."""
    for number, gpu in enumerate(gpus):
        bare = {"number": number, "address": gpu["address"], "mig": gpu["mig_enabled"]}
        for one in gpu["gpu_instances"]:
            slots = f"{one['start']} to {one['start'] + one['size'] - 1}"
            yield {**bare, **one, "slots": slots, "vm": one["vm"] or "not ours"}
        if not gpu["gpu_instances"]:
            yield {**bare, "id": None, "profile": None, "slots": None, "vm": None}


def entries(gpus: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What mig-parted calls a configuration: GPUs that are alike share an entry."""
    found: dict[tuple[bool, tuple[tuple[str, int], ...]], list[int]] = {}
    for number, gpu in enumerate(gpus):
        if gpu["mig_enabled"] is not None:
            counts = Counter(str(one["profile"]) for one in gpu["gpu_instances"])
            found.setdefault((gpu["mig_enabled"], tuple(sorted(counts.items()))), []).append(number)
    return [
        {"devices": numbers, "mig-enabled": on, **({"mig-devices": dict(counts)} if on else {})}
        for (on, counts), numbers in found.items()
    ]


def config_lines(config: Sequence[Mapping[str, Any]]) -> list[str]:
    """As a file of mig-parted."""
    lines = ["version: v1", "mig-configs:", f"  {NAME}:"]
    for entry in config:
        lines += [f"    - devices: {entry['devices']}", f"      mig-enabled: {str(entry['mig-enabled']).lower()}"]
        counts = entry.get("mig-devices")
        if counts == {}:
            lines.append("      mig-devices: {}")
        elif counts:
            lines += ["      mig-devices:", *(f'        "{profile}": {counts[profile]}' for profile in counts)]
    return lines
