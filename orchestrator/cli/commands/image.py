# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl image …``"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.complete import images
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.group import new_group
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import ServerPath, Sort
from orchestrator.cli.session import Format, Output, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, size
from orchestrator.cli.uploading import take_image
from orchestrator.client.connection import Json
from orchestrator.core.digest import check_sha256
from orchestrator.core.host_actions import ImageFormat
from orchestrator.core.names import check_name
from orchestrator.core.units import GIB, MIB

_UNITS: Final = (("GiB", GIB), ("MiB", MIB), ("KiB", 1024))
app = new_group("Base images that VMs' disks are made on.")


def _size(size: int) -> str:
    """``428MiB``, ``2.1GiB``: files have no round sizes."""
    for unit, of in _UNITS:
        if size >= of:
            return (f"{size / of:.0f}" if size >= 10 * of else f"{size / of:.1f}".removesuffix(".0")) + unit
    return f"{size} bytes"


COLUMNS: Final = (
    field("NAME", "name", Fit.WHOLE),
    field("FORMAT", "format"),
    size("SIZE", "size_bytes", text=_size),
    size("DISK", "virtual_size_bytes", text=_size),
    age(),
    Column("SHA256", lambda image: shown(image["sha256"])[:16]),
)


@app.command("add")
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the new image.")],
    source: Annotated[str, typer.Argument(help="File (qcow2 or raw), which is sent, or http(s) URL.")],
    sha256: Annotated[str | None, typer.Option("--sha256", help="What the content must hash to.")] = None,
    image_format: Annotated[
        ImageFormat | None, typer.Option("--format", help="What it is, where its content does not tell: a raw disk.")
    ] = None,
    server_path: ServerPath = False,
    output: Output = Format.TABLE,
) -> None:
    """Take a file or URL as a base image."""
    check_name(name, what="image")
    session, digest = session_of(ctx), check_sha256(sha256, "image.digest_invalid")
    if server_path:
        wanted = {"name": name, "source": source, "sha256": digest, "format": image_format}
        image: Json = session.client.add_image(wanted)
    else:
        image = take_image(session, name, source, digest, image_format)
    show(image, output, lambda: [f"{shown(image['name'])}: {image['format']}, SHA-256 {image['sha256']}"])


@app.command("list")
def list_images(ctx: typer.Context, sort: Sort = None, output: Output = Format.TABLE) -> None:
    """List base images."""
    show_list(
        session_of(ctx).client.images(), COLUMNS, output, "no images yet: vgpuctl image add NAME FILE-OR-URL", sort
    )


@app.command("guest-driver")
def guest_driver(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the image.", autocompletion=images)],
    version: Annotated[str, typer.Argument(help="Version of the NVIDIA driver in it, or 'none'.")],
    output: Output = Format.TABLE,
) -> None:
    """Say which driver is in an image. Its VMs start only on hosts that take it."""
    image = session_of(ctx).client.set_guest_driver(name, None if version == "none" else version)
    known = shown(image["guest_driver"]) if image["guest_driver"] else "nobody knows which driver is in it"
    show(image, output, lambda: [f"{shown(image['name'])}: {known}"])


@app.command("show")
def show_image(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the image.", autocompletion=images)],
    output: Output = Format.TABLE,
) -> None:
    """Show one base image."""
    image = session_of(ctx).client.image(check_name(name, what="image"))
    pairs = [
        ("name", shown(image["name"])),
        ("format", shown(image["format"])),
        ("size", _size(image["size_bytes"])),
        ("disk", _size(image["virtual_size_bytes"])),
        ("SHA-256", shown(image["sha256"])),
        ("guest driver", shown(image["guest_driver"] or "not known")),
        ("created", show_time(image["created_at"])),
    ]
    show(image, output, lambda: render_details(pairs))


@app.command("remove")
def remove(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the image.", autocompletion=images)],
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Forget a base image that no VM uses."""
    confirm("remove image", [name], yes=yes)
    session_of(ctx).client.remove_image(name)
    show({"name": name, "removed": True}, output, lambda: [f"{name} is removed"])
