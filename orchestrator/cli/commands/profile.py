# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl profile …``"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.complete import offerings, profiles
from orchestrator.cli.failure import MAX_REASONS
from orchestrator.cli.output import printable, render_details, show, shown
from orchestrator.cli.parameters import OfHost, Sort
from orchestrator.cli.session import format_of, session_of
from orchestrator.cli.table import Column, Fit, field, show_list, size
from orchestrator.cli.tree import new_group
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.features import FEATURES, features_of
from orchestrator.core.labels import show_labels
from orchestrator.core.offerings.offering import OfferingKind
from orchestrator.core.units import MIB

MAX_HOSTS: Final = 6
app = new_group("What --profile takes: offerings, vGPU types, MIG profiles.")
OfferingFile = Annotated[Path, typer.Argument(metavar="FILE", help="Offering file.")]


def _gives(profile: Mapping[str, Any]) -> str:
    if profile["gpu_count"]:
        return f"{profile['gpu_count']} whole GPU" + ("s" if profile["gpu_count"] > 1 else "")
    if profile["vgpu_type"]:
        count = profile["vgpu_count"]
        return (f"{count} x " if count > 1 else "") + shown(profile["vgpu_type"])
    return shown(profile["mig_profile"])


def _hosts(profile: Mapping[str, Any]) -> str:
    """Of many the first ones; ``profile show`` has all."""
    more = (profile["host_count"] or 0) - MAX_HOSTS
    return shown(profile["hosts"][:MAX_HOSTS]) + (f" and {more} more" if more > 0 else "")


def _on_the_host(profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Of an offering whose VMs have CPUs alone, insist on a NUMA node, have huge pages, limited disks, a feature of
    their hosts or a network function. Older servers do not say."""
    cpu, numa, pages = (profile.get(name) for name in ("cpu", "numa", "hugepages"))
    lines = [("CPUs", f"{shown(cpu)}, numa {shown(numa)}")] if cpu == "pinned" or numa == "strict" else []
    lines += [("Memory", f"huge pages of {pages}")] if pages else []
    limits = DiskLimits.of_offering(profile.get)
    lines += [("disk limits", limits.words)] if limits is not None else []
    features = (FEATURES[feature] for feature in features_of(profile.get("firmware"), profile))
    lines += [(text.label, text.of_offering) for text in features]
    return [*lines, ("Network card", "a virtual function near its GPU")] if profile.get("nic") else lines


def _size(profile: Mapping[str, Any]) -> str:
    """Of a VM for which none is asked. Older servers do not say."""
    vcpus, memory, disk = shown(profile.get("vcpus")), MEMORY.text(profile), DISK.text(profile)
    return f"{vcpus} vCPUs, {memory} memory, {disk} disk, if not asked for otherwise"


FRAMEBUFFER: Final = size("FRAMEBUFFER", "framebuffer_mib", MIB)
MEMORY, DISK = size("MEMORY", "memory_mib", MIB), size("DISK", "disk_bytes", wide=True)
COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("KIND", "kind", spare=True),
    Column("GIVES", _gives),
    FRAMEBUFFER,
    field("VCPUS", "vcpus"),
    MEMORY,
    DISK,
    field("FREE", "free"),
    Column("HOSTS", _hosts, Fit.WRAP),
    field("PROVISION", "provision", Fit.WRAP, wide=True),
)


def _why_not(profile: Mapping[str, Any]) -> str:
    if profile["unsupported"]:
        return f"asks for {shown(profile['unsupported'])}, which is not set on hosts so far"
    if profile["available"]:
        return "-"
    labels = show_labels(profile["host_labels"])
    host = f"host labelled {shown(labels)}" if labels else "host"
    own = " and keeps CPUs for VMs that have theirs alone" if profile.get("cpu") == "pinned" else ""
    return f"no {host} offers it{own}"


ALL_COLUMNS: Final = (*COLUMNS, Column("WHY NOT", _why_not, Fit.WRAP))


@app.command("list")
def list_profiles(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also what no host here gives, and why.")] = False,
    kind: Annotated[OfferingKind | None, typer.Option("--kind", help="Only those of this kind.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Only what a GPU of this model gives, or of those with this in their names."),
    ] = None,
    host: OfHost = None,
    free: Annotated[bool, typer.Option("--free", help="Only those of which one more fits now.")] = False,
    sort: Sort = None,
) -> None:
    """List offerings and vGPU types that this site can give. What is free comes first."""
    client, of_kind = session_of(ctx).client, kind
    profiles = client.profiles(kind=of_kind, model=model, host=host, free=free, available=not everything)
    by_free = sorted(profiles, key=lambda profile: not profile["free"])
    picked = kind is not None or model is not None or host is not None or free
    if everything:
        show_list(by_free, ALL_COLUMNS, format_of(ctx), "no such profiles" if picked else "no profiles", sort)
    else:
        what = "no host here gives such a profile" if picked else "no host here gives any"
        show_list(by_free, COLUMNS, format_of(ctx), f"{what}; --all lists what vgpuctl knows", sort)


@app.command("show")
def show_profile(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Any name that --profile takes.", autocompletion=profiles)],
) -> None:
    """Show one profile."""
    profile = session_of(ctx).client.profile(name)
    show(
        profile,
        format_of(ctx),
        lambda: render_details(
            [
                ("name", shown(profile["name"])),
                ("kind", shown(profile["kind"])),
                ("version", shown(profile["version"])),
                ("origin", shown(profile["origin"])),
                ("description", shown(profile["description"])),
                ("gives", _gives(profile)),
                ("framebuffer", FRAMEBUFFER.text(profile)),
                ("VM's size", _size(profile)),
                ("GPU models", shown(profile["gpu_models"])),
                ("host labels", shown(show_labels(profile["host_labels"]))),
                *_on_the_host(profile),
                ("hosts", shown(profile["hosts"])),
                ("free", shown(profile["free"])),
                ("provision", shown(profile["provision"])),
                ("why not", _why_not(profile)),
            ]
        ),
    )


@app.command("add")
def add(ctx: typer.Context, path: OfferingFile) -> None:
    """Add the offerings of a file to this site's. One that no VM has may be changed so."""
    from orchestrator.catalogue.offering_files import site_offerings
    from orchestrator.cli.manifest.observed import request_of

    client = session_of(ctx).client
    put = [client.put_offering(request_of(offering, look_up=look_up)) for offering, look_up in site_offerings(path)]
    show(
        put, format_of(ctx), lambda: [f"{shown(offering_row['name'])}: {_gives(offering_row)}" for offering_row in put]
    )


@app.command("remove")
def remove(
    ctx: typer.Context, name: Annotated[str, typer.Argument(help="Offering of this site.", autocompletion=offerings)]
) -> None:
    """Take away an offering of this site that no VM has."""
    session_of(ctx).client.remove_offering(name)
    show({"name": name, "removed": True}, format_of(ctx), lambda: [f"{shown(name)} is removed"])


@app.command("validate")
def validate(ctx: typer.Context, path: OfferingFile) -> None:
    """Check a file of offerings. File, line and reason of every mistake are told. Needs no server."""
    from orchestrator.catalogue.offering_files import validate_offering_file

    problems = validate_offering_file(path)
    lines = [printable(str(problem)) for problem in problems[:MAX_REASONS]] or [f"{printable(str(path))} is right"]
    if len(problems) > MAX_REASONS:
        lines.append(f"and {len(problems) - MAX_REASONS} more (-o json has all)")
    show([asdict(problem) for problem in problems], format_of(ctx), lambda: lines)
    if problems:
        raise typer.Exit(2)
