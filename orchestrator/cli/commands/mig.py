# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl mig …``"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.files import read_text
from orchestrator.cli.output import show, shown
from orchestrator.cli.parameters import Host, Sort, Wait
from orchestrator.cli.progress import follow
from orchestrator.cli.session import CliSession, Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, Listing, field, show_list, show_rows
from orchestrator.cli.tree import new_group
from orchestrator.client.connection import Json

app = new_group("GPU instances of a host's GPUs.")

DIFFERENT: Final = 3
NAME: Final = "current"
"""What the exported configuration is called."""


def _mode(row: Mapping[str, Any]) -> str:
    return "never" if row["mig"] is None else "on" if row["mig"] else "off"


COLUMNS: Final = (
    field("ADDRESS", "address", Fit.WHOLE),
    field("GPU", "number", Fit.WHOLE),
    Column("MIG", _mode, Fit.WHOLE),
    field("INSTANCE", "id", Fit.WHOLE),
    field("PROFILE", "profile", Fit.WHOLE),
    field("SLOTS", "slots"),
    Column("VM", lambda row: shown(row["vm"]), Fit.WRAP),
    Column("MIG DEVICE", lambda row: " ".join(row["mig_devices"]) or "-", Fit.WHOLE, wide=True),
    Column("CAPABILITIES", lambda row: " ".join(row["capabilities"]) or "-", Fit.WHOLE, wide=True),
)


@app.command("show")
def show_instances(ctx: typer.Context, host: Host, sort: Sort = None) -> None:
    """Show the GPU instances of a host, whoever made them.

    -o wide has the UUIDs and capability files that containers need.
    """
    gpus = _gpus_of(ctx, host)
    listing = Listing(columns=COLUMNS, none="no GPUs", output=format_of(ctx), sort=sort)
    show_rows(gpus, list(rows(gpus)), listing)


@app.command("export")
def export(ctx: typer.Context, host: Host) -> None:
    """Print a host's GPU instances as a configuration of mig-parted.

    It is called current. GPUs are numbered in PCI order; those without MIG are left out.
    """
    layouts = entries(_gpus_of(ctx, host))
    show({"version": "v1", "mig-configs": {NAME: layouts}}, format_of(ctx), lambda: config_lines(layouts))


File = Annotated[Path, typer.Option("--file", "-f", help="Configuration file of mig-parted.")]
Config = Annotated[str, typer.Option("--config", "-c", help="Which of its configurations.")]


@app.command("plan")
def plan(ctx: typer.Context, host: Host, file: File, config: Config) -> None:
    """Show what apply would do to each GPU. Exit code 3 when it would do something."""
    plans = session_of(ctx).client.plan_mig_layout(host, _entries_in(file, config))
    show_list(plans, PLANNED, format_of(ctx), "no GPUs")
    raise typer.Exit(DIFFERENT if any(plan["changes"] for plan in plans) else 0)


@app.command("apply")
def apply(ctx: typer.Context, host: Host, file: File, config: Config, wait: Wait = True) -> None:
    """Cut GPUs as a configuration of mig-parted says, and keep them so.

    Only GPUs without anything of others on them. VMs get no part of them until mig release; those that leave
    MIG mode are VMs' to have at once.
    """
    session = session_of(ctx)
    started = session.client.apply_mig_layout(host, _entries_in(file, config))
    _end(session, started, wait, session.format, f"{config} is applied to {host}")


@app.command("release")
def release(
    ctx: typer.Context,
    host: Host,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="ADDRESS", help="This GPU only.")] = None,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Remove the GPU instances of a layout. VMs may have the GPUs again."""
    confirm("release the MIG layout of", [gpu or host], yes=yes)
    session = session_of(ctx)
    started = session.client.release_mig_layout(host, gpu)
    _end(session, started, wait, session.format, f"the MIG layout of {gpu or host} is released")


def _end(session: CliSession, started: Json, wait: bool, output: Format, done: str) -> None:
    if started["operation"] is None:
        show(started, output, lambda: ["everything is so already"])
        return
    if not wait:
        show(started, output, lambda: [f"operation {shown(started['operation'])} started"])
        return
    operation = follow(session, started["operation"])
    show(operation, output, lambda: [done], name=started["name"])


def _entries_in(file: Path, config: str) -> list[Json]:
    """:raises InvalidInput: ``mig.config_invalid``, ``mig.config_unknown``"""
    from orchestrator.catalogue.mig_file import MAX_MIG_FILE_BYTES, read_mig_config

    layouts = read_mig_config(file, read_text(file, what="file", max_bytes=MAX_MIG_FILE_BYTES), config)
    return [layout.model_dump(by_alias=True, exclude_none=True) for layout in layouts]


def _planned(row: Mapping[str, Any]) -> str:
    if not row["changes"]:
        return "as it is"
    slots = [f"-{start}" for start in row["removed"]] + [f"+{start}" for start in row["made"]]
    return " ".join(slots) or "-"


def _layout(row: Mapping[str, Any]) -> str:
    places = (f"{instance['profile']} at {instance['start']}" for instance in row["instances"])
    return ", ".join(places) or ("none" if row["wanted_mig"] else "-")


PLANNED: Final = (
    field("ADDRESS", "address", Fit.WHOLE),
    field("GPU", "number", Fit.WHOLE),
    Column("MIG", lambda row: "on" if row["wanted_mig"] else "off"),
    Column("LAYOUT", _layout, Fit.WRAP),
    Column("CHANGES", _planned),
    Column("IN THE WAY", lambda row: ", ".join(row["in_the_way"]) or "-", Fit.WRAP),
)


_NO_INSTANCE: Final = {"id": None, "profile": None, "slots": None, "vm": None, "mig_devices": (), "capabilities": ()}


def _gpus_of(ctx: typer.Context, host: str) -> list[Json]:
    """In PCI order. :raises NotFound: ``host.unknown``"""
    client = session_of(ctx).client
    client.host(host)
    return sorted((gpu for gpu in client.gpus() if gpu["host"] == host), key=lambda gpu: str(gpu["address"]))


def rows(gpus: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, object]]:
    """A row for each GPU instance, and one for a GPU that has none."""
    for number, gpu in enumerate(gpus):
        bare = {"number": number, "address": gpu["address"], "mig": gpu["mig_enabled"]}
        for gpu_instance in gpu["gpu_instances"]:
            slots = f"{gpu_instance['start']} to {gpu_instance['start'] + gpu_instance['size'] - 1}"
            yield {**bare, **gpu_instance, "slots": slots, "vm": ", ".join(gpu_instance["vms"]) or _whose(gpu_instance)}
        if not gpu["gpu_instances"]:
            yield {**bare, **_NO_INSTANCE}


def _whose(instance: Mapping[str, Any]) -> str:
    return "layout" if instance["layout"] else "not ours"


def entries(gpus: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What mig-parted calls a configuration: GPUs that are alike share an entry."""
    addresses: dict[tuple[bool, tuple[tuple[str, int], ...]], list[int]] = {}
    for number, gpu in enumerate(gpus):
        if gpu["mig_enabled"] is not None:
            counts = Counter(str(gpu_instance["profile"]) for gpu_instance in gpu["gpu_instances"])
            addresses.setdefault((gpu["mig_enabled"], tuple(sorted(counts.items()))), []).append(number)
    return [
        {"devices": numbers, "mig-enabled": on, **({"mig-devices": dict(counts)} if on else {})}
        for (on, counts), numbers in addresses.items()
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
