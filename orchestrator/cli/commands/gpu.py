# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl gpu …``"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from orchestrator.cli.commands import maintenance
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import printable, render_details, show, shown, width
from orchestrator.cli.parameters import (
    AddressOfGpu,
    Host,
    HostOfGpu,
    ListTenant,
    OfHost,
    OfModel,
    Sort,
    Svg,
    Wait,
    gpu_place,
    tenant_if_named,
)
from orchestrator.cli.progress import follow
from orchestrator.cli.readings import Readings, reading_lines
from orchestrator.cli.session import Format, format_of, session_of
from orchestrator.cli.table import Column, Fit, Listing, age, field, list_lines, render_table, show_list, size, time
from orchestrator.cli.tree import new_group
from orchestrator.cli.watch import View, Watch, list_view, show_view
from orchestrator.core.errors import InvalidInput
from orchestrator.core.geometry.cut import cut_words
from orchestrator.core.gpu.model import models_meant
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.units import MIB, show_size

app = new_group("Show GPUs, what they offer and who uses them.")

NO_GPUS: Final = "no GPUs yet: vgpuctl host add NAME --address A"
SHOWN_NOUNS: Final = ("host", "gpu", "vm", "operation", "finding")
"""As the page of the map: what is free, in use, or no good."""
DRAWN_WIDTH: Final = 80
DRAWN_HOSTS: Final = 20
"""Of more, the map is a summary: nobody reads ten thousand bars."""


def _memory(gpu: Mapping[str, Any]) -> str:
    return shown(None) if gpu["memory_mib"] is None else show_size(gpu["memory_mib"] * MIB)


COLUMNS: Final = (
    Column("NAME", lambda gpu: f"{shown(gpu['host'])} {shown(gpu['address'])}", Fit.WHOLE, wide=True),
    field("HOST", "host", Fit.WHOLE),
    field("ADDRESS", "address", Fit.WHOLE),
    field("MODEL", "model"),
    Column("MEMORY", _memory, Fit.WHOLE),
    field("NUMA", "numa_node", spare=True),
    field("FRAMEWORK", "framework", spare=True),
    field("OURS", "managed"),
    field("STATE", "state"),
    Column("CUT", lambda gpu: shown(cut_words(gpu["cut"]))),
    Column("VMS", lambda gpu: str(len(gpu["vms"]))),
)

MAP_COLUMNS: Final = (
    Column("NAME", lambda gpu: " ".join(filter(None, (gpu["host"], gpu["gpu"])))),
    field("HOST", "host"),
    field("GPU", "gpu"),
    field("MODEL", "model"),
    Column("CUT", lambda gpu: shown(cut_words(gpu["cut"]))),
    field("SLOTS", "slots"),
    field("FREE", "free"),
    Column(
        "VMS", lambda gpu: str(len({(cell["tenant"], cell["vm"]) for cell in gpu["cells"] if cell["vm"] is not None}))
    ),
)
"""Of the map where it is not drawn."""


def _rack(rack: Mapping[str, Any]) -> str:
    return "(no rack)" if rack["rack"] is None else shown(rack["rack"])


def _sum(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda rack: f"{sum(rack[name]):g}"


RACK_COLUMNS: Final = (
    Column("RACK", _rack, Fit.WHOLE),
    Column("HOSTS", lambda rack: str(len(rack["hosts"]))),
    Column("READY", lambda rack: str(rack["states"].count("ready"))),
    Column("GPUS", _sum("gpus")),
    Column("USED", _sum("used")),
    Column("EMPTY", _sum("empty")),
    Column("UNUSABLE", _sum("unusable")),
)

TYPE_COLUMNS: Final = (
    field("TYPE", "name", Fit.WHOLE),
    size("FRAMEBUFFER", "framebuffer_mib", MIB),
    field("MOST", "max_instances"),
    field("USED", "used"),
    field("FREE", "free"),
)


INSTANCE_COLUMNS: Final = (
    field("INSTANCE", "id"),
    field("PROFILE", "profile", Fit.WHOLE),
    Column("SLOTS", lambda one: f"{one['start']} to {one['start'] + one['size'] - 1}"),
    field("COMPUTE", "compute_instances"),
    Column("VM", lambda one: shown(", ".join(one["vms"]) or "not ours")),
)


def _mig(gpu: Mapping[str, Any]) -> str:
    now, pending = gpu["mig_enabled"], gpu["mig_pending"]
    waits = pending is not None and pending != now
    return shown(now) + (f" ({'on' if pending else 'off'} after the next reset)" if waits else "")


def _scheduler(gpu: Mapping[str, Any]) -> str:
    now = gpu["scheduler"]
    if now is None:
        return shown(None)
    words, slice_us = str(now["policy"]).replace("_", " "), now["time_slice_us"]
    words += "" if slice_us is None else f", slices of {slice_us / 1000:g} ms"
    return words if now["share_percent"] is None else f"{words}, {now['share_percent']:g} % of the time to each vGPU"


def _power(gpu: Mapping[str, Any]) -> str:
    limit, least, most = gpu["power_limit_watts"], gpu["power_min_watts"], gpu["power_max_watts"]
    if least is None:
        return shown(None)
    can_be = f"{least} to {most} W, {gpu['power_default_watts']} W by itself"
    return f"unknown ({can_be})" if limit is None else f"{limit} W ({can_be})"


def _fabric(fabric: Mapping[str, Any] | None) -> str:
    if fabric is None:
        return shown(None)
    state, cluster = fabric["state"].replace("_", " "), fabric["cluster"]
    return shown(state if cluster is None else f"{state}, cluster {cluster}, clique {fabric['clique']}")


def _picked(gpus: Sequence[Mapping[str, Any]], host: str | None, model: str | None) -> list[Mapping[str, Any]]:
    """:raises NotFound: ``gpu.model_unknown``"""
    meant = models_meant(model, (gpu["model"] for gpu in gpus))
    return [gpu for gpu in gpus if host in {None, gpu["host"]} and gpu["model"] in meant]


@app.command("list")
def list_gpus(
    ctx: typer.Context, host: OfHost = None, model: OfModel = None, sort: Sort = None, watch: Watch = False
) -> None:
    """List GPUs of all hosts."""
    session = session_of(ctx)
    none = "no such GPUs" if host or model else NO_GPUS
    listing = Listing(columns=COLUMNS, none=none, output=session.format, sort=sort)
    if host is not None:
        session.client.host(host)

    def read_view() -> View:
        picked = _picked(session.client.gpus(), host, model)
        return list_view(picked, listing, lambda gpu: f"{shown(gpu['host'])}/{gpu['address']}")

    show_view(session, read_view, watch=watch, nouns=SHOWN_NOUNS)


@app.command("show")
def show_gpu(
    ctx: typer.Context,
    host: HostOfGpu,
    address: AddressOfGpu = None,
    readings: Readings = False,
) -> None:
    """Show one GPU with its vGPU types, free and used."""
    host, address = gpu_place(host, address)
    client = session_of(ctx).client
    gpu: dict[str, Any] = {**client.gpu(host, address)}
    lines = details(gpu)
    if readings:
        of_host = client.host_readings(host)
        own = [
            reading for reading in of_host["readings"] if reading["kind"] == "gpu" and reading["gpu"] == gpu["address"]
        ]
        gpu["readings"] = [dict(reading) for reading in own]
        lines += reading_lines(of_host["age_s"], own)
    show(gpu, format_of(ctx), lambda: lines)


def details(gpu: Mapping[str, Any]) -> list[str]:
    pairs = [
        ("host", shown(gpu["host"])),
        ("address", shown(gpu["address"])),
        ("model", shown(gpu["model"])),
        ("PCI id", shown(gpu["pci_id"])),
        ("UUID", shown(gpu["uuid"])),
        ("memory", _memory(gpu)),
        ("NUMA node", shown(gpu["numa_node"])),
        ("driver", shown(gpu["driver"])),
        ("framework", shown(gpu["framework"])),
        ("VFs enabled", shown(gpu["virtual_functions"])),
        ("MIG", _mig(gpu)),
        ("scheduler", _scheduler(gpu)),
        ("mixed sizes", shown(gpu["mixed_sizes"])),
        ("power limit", _power(gpu)),
        ("fabric", _fabric(gpu["fabric"])),
        ("ours", shown(gpu["managed"])),
        ("state", shown(gpu["state"])),
        ("cut", shown(cut_words(gpu["cut"]))),
        ("VMs", shown(gpu["vms"])),
    ]
    pairs += [("problem", shown(problem)) for problem in gpu["problems"]]
    lines = render_details(pairs)
    if gpu["gpu_instances"]:
        lines += ["", *render_table(gpu["gpu_instances"], INSTANCE_COLUMNS, width())]
    if gpu["types"]:
        lines += ["", *render_table(gpu["types"], TYPE_COLUMNS, width())]
    return lines


_METHOD_WORDS: Final = {
    "not_made": "it was never made",
    "absent": "nothing was left: removed before, as at a stop",
    "seen_gone": "an observation shows its GPU without it",
    "host_given_up": "not seen: its host was given up",
    "vgpu_destroyed": "the driver destroyed the vGPU",
    "instance_destroyed": "the driver destroyed the GPU instance",
    "bus_reset": "the GPU was reset by its bus",
    "flr": "the GPU was reset",
}


def _cleaned(row: Mapping[str, Any]) -> str:
    return "sanitising" if row["sanitising"] else shown(_METHOD_WORDS.get(row["method"], row["method"]))


CLEANING_COLUMNS: Final = (
    field("NUMBER", "id", Fit.WHOLE),
    age("ended_at"),
    time("ENDED AT", "ended_at", wide=True),
    field("HOST", "host", Fit.WHOLE),
    field("GPU", "gpu", Fit.WHOLE),
    field("CARD", "gpu_uuid", Fit.WHOLE, wide=True),
    field("DEVICE", "device", Fit.WHOLE, wide=True),
    field("TYPE", "type_name", Fit.WHOLE),
    Column("VM", lambda row: f"{shown(row['tenant'])}/{shown(row['vm_name'])}", Fit.WHOLE),
    Column("CLEANED", _cleaned, Fit.WRAP),
    time("CLEAN SINCE", "cleaned_at", wide=True),
    field("HEALTH", "health", spare=True),
    field("OPERATION", "operation", wide=True),
)


@app.command("cleanings")
def list_cleanings(
    ctx: typer.Context,
    host: OfHost = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="ADDRESS", help="Only of the GPU there; or HOST/ADDRESS.")
    ] = None,
    vm: Annotated[str | None, typer.Option("--vm", metavar="NAME", help="Only after VMs of this name.")] = None,
    tenant: ListTenant = None,
    sanitising: Annotated[
        bool, typer.Option("--sanitising", help="Only what is not known to be clean: those GPUs take nothing new.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="At most so many.")] = 100,
) -> None:
    """List how what VMs left on GPUs was cleaned.

    A row for each device whose claim has ended, newest first. Where one stays sanitising though its host answers,
    'vgpuctl doctor' tells what is left there.
    """
    session = session_of(ctx)
    if gpu is not None and "/" in gpu:
        named, gpu = gpu_place(gpu, None)
        if host not in {None, named}:
            raise InvalidInput("cli.usage", f"{host} and {named} are two hosts", hint="a GPU is of one host: name that")
        host = named
    address = None if gpu is None else parse_pci_address(gpu)
    only = {"host": host, "gpu": address, "vm": vm, "tenant": tenant, "sanitising": "true" if sanitising else None}
    rows = session.client.gpu_cleanings(limit, **only)
    none = "nothing is sanitising" if sanitising else "no claims on GPUs have ended"
    show_list(rows, CLEANING_COLUMNS, session.format, none, None)


@app.command("map")
def map_gpus(
    ctx: typer.Context,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only GPUs with its VMs, as it sees them.", callback=tenant_if_named)
    ] = None,
    host: OfHost = None,
    model: OfModel = None,
    whole: Annotated[bool, typer.Option("--all", help="Draw all of them, however many hosts there are.")] = False,
    svg: Svg = None,
    watch: Watch = False,
) -> None:
    """Draw every GPU as its slots, with the VMs in them. Of more than 20 hosts a summary."""
    from orchestrator.cli.advice.gpu_map import render_gpu_map, render_summary
    from orchestrator.cli.advice.pictures import gpu_map_svg, write_svg

    session = session_of(ctx)
    if host is not None and tenant is None:
        session.client.host(host)

    def read_view() -> View:
        gpus = _picked(session.client.gpu_map(tenant)["gpus"], host, model)
        if svg is not None:
            write_svg(svg, gpu_map_svg(gpus))
        many = not whole and len({gpu["host"] for gpu in gpus}) > DRAWN_HOSTS
        draw = render_summary if many else render_gpu_map
        if session.format in {Format.NAME, Format.CSV}:
            return View(data=gpus, lines=lambda: list_lines(gpus, MAP_COLUMNS, session.format, ""))
        return View(data=gpus, lines=lambda: [printable(line) for line in draw(gpus, width() or DRAWN_WIDTH)])

    show_view(session, read_view, watch=watch, nouns=SHOWN_NOUNS)


@app.command("racks")
def list_racks(
    ctx: typer.Context,
    model: OfModel = None,
    sort: Sort = None,
    watch: Watch = False,
) -> None:
    """List the use of GPUs by rack, the label 'rack' of hosts."""
    session = session_of(ctx)
    listing = Listing(columns=RACK_COLUMNS, none=NO_GPUS, output=session.format, sort=sort)

    def read_view() -> View:
        return list_view(session.client.gpu_racks(model)["racks"], listing, _rack)

    show_view(session, read_view, watch=watch, nouns=SHOWN_NOUNS)


app.command("defragment")(maintenance.defragment)


@app.command("accept")
def accept(
    ctx: typer.Context,
    host: Host,
    address: Annotated[
        list[str] | None, typer.Argument(help="PCI addresses of GPUs whose card was replaced by the one there now.")
    ] = None,
    yes: Yes = False,
    wait: Wait = True,
) -> None:
    """Say that a host's cards are right where they are now.

    After they were moved, they keep their VMs and all that is claimed on them. A card that was never seen before
    becomes the GPU of an address only where that is named.
    """
    replaced = [parse_pci_address(card) for card in address or []]
    if replaced:
        confirm("take as the GPU from now on whatever card is at", replaced, yes=yes)
    session = session_of(ctx)
    started = session.client.accept_gpus(host, replaced)
    if not wait:
        show(started, session.format, lambda: [f"operation {shown(started['operation'])} started"])
        return
    operation = follow(session, str(started["operation"]))
    show(operation, session.format, lambda: [f"the cards of {host} are accepted where they are"], name=host)
