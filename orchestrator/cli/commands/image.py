# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl image …``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from orchestrator.cli.ages import show_time
from orchestrator.cli.complete import images
from orchestrator.cli.confirm import Yes, confirm
from orchestrator.cli.output import render_details, show, shown
from orchestrator.cli.parameters import (
    Description,
    Label,
    ListTenant,
    Selector,
    ServerPath,
    Sha256,
    Sort,
    Tenant,
    Unlabel,
    Wait,
    of_snapshot,
    tenant_if_named,
    vm_and_snapshot,
)
from orchestrator.cli.progress import follow
from orchestrator.cli.said import SAID, said_of, something_said
from orchestrator.cli.scope import scoped_name
from orchestrator.cli.session import CliSession, format_of, session_of
from orchestrator.cli.table import Column, Fit, age, field, show_list, size
from orchestrator.cli.tree import new_group
from orchestrator.cli.uploading import image_key, sending, take_image
from orchestrator.cli.vm_outcome import started_lines
from orchestrator.client.connection import Json
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import check_name, check_sha256
from orchestrator.core.units import GIB, MIB
from orchestrator.core.vms.image import check_file_name

_UNITS: Final = (("GiB", GIB), ("MiB", MIB), ("KiB", 1024))
app = new_group("Base images that VMs' disks are made on.")


def _size(size: int) -> str:
    """``428MiB``, ``2.1GiB``: files have no round sizes."""
    for unit, of in _UNITS:
        if size >= of:
            return (f"{size / of:.0f}" if size >= 10 * of else f"{size / of:.1f}".removesuffix(".0")) + unit
    return f"{size} bytes"


def _own_tenant(ctx: typer.Context, text: str | None) -> str | None:
    """What was named, by a name too, else the only tenant that a token has; None: the site."""
    named = tenant_if_named(ctx, text)
    if named is not None or ctx.resilient_parsing or not isinstance(ctx.find_root().obj, CliSession):
        return named
    return session_of(ctx).only_tenant


def _image_name(ctx: typer.Context, text: str) -> str:
    return scoped_name(ctx, text, "image")


Whose = Annotated[
    str | None,
    typer.Option(
        "--tenant", help="Whose it is; left out: your only tenant, of operators the site.", callback=_own_tenant
    ),
]
ImageName = Annotated[
    str, typer.Argument(help="Name of the image, or TENANT/NAME.", autocompletion=images, callback=_image_name)
]


def _name(image: Json) -> str:
    return shown(image_key(image))


def _whose(image: Json) -> str:
    if image["tenant"] is None:
        return "the site, for every tenant"
    return f"tenant {shown(image['tenant'])}" + (", shared with every tenant" if image["shared"] else "")


COLUMNS: Final = (
    Column("NAME", _name, Fit.WHOLE),
    field("FORMAT", "format"),
    size("SIZE", "size_bytes", text=_size),
    size("DISK", "virtual_size_bytes", text=_size),
    age(),
    Column("SHA256", lambda image: shown(image["sha256"])[:16]),
    *SAID,
)


@app.command("add")
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the new image.", callback=_image_name)],
    source: Annotated[str, typer.Argument(help="File (qcow2, raw or VMDK), which is sent, or http(s) URL.")],
    sha256: Sha256 = None,
    image_format: Annotated[
        ImageFormat | None, typer.Option("--format", help="What it is, where its content does not tell: a raw disk.")
    ] = None,
    server_path: ServerPath = False,
    tenant: Whose = None,
    shared: Annotated[bool, typer.Option("--shared", help="Other tenants may use it too, as TENANT/NAME.")] = False,
) -> None:
    """Take a file or URL as a base image. The same again, shared or not, changes that."""
    session, digest = session_of(ctx), check_sha256(sha256, "image.digest_invalid")
    if tenant is not None:
        _check_sent(source, server_path=server_path)
        with sending(session, Path(source), digest) as content:
            image: Json = session.client.upload_image(name, content, image_format, tenant, shared=shared)
    elif shared:
        raise InvalidInput("cli.usage", "images of the site are everybody's", hint="leave --shared out")
    elif server_path:
        wanted = {"name": name, "source": source, "sha256": digest, "format": image_format}
        image = session.client.add_image(wanted)
    else:
        image = take_image(session, name, source, digest, image_format)
    show(image, session.format, lambda: [f"{_name(image)}: {image['format']}, SHA-256 {image['sha256']}"])


@app.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the new image.")],
    from_snapshot: Annotated[
        str,
        typer.Option("--from-snapshot", metavar="VM/SNAPSHOT", help="What is on its disk.", callback=of_snapshot("vm")),
    ],
    tenant: Tenant = "default",
    wait: Wait = True,
) -> None:
    """Make a base image of a snapshot. It is the tenant's own, and its VMs go to any host."""
    session = session_of(ctx)
    vm, snapshot = vm_and_snapshot(from_snapshot)
    begun = session.client.create_image(vm, tenant, snapshot, check_name(name, what="image"))
    if not wait:
        show(begun, session.format, lambda: started_lines(begun))
        return
    follow(session, str(begun["operation"]))
    image = session.client.image(name, tenant)
    show(image, session.format, lambda: _details(image))


def _check_sent(source: str, *, server_path: bool) -> None:
    """A tenant's is a file of its own. :raises InvalidInput: ``image.source_refused``, ``image.architecture``"""
    if server_path or "://" in source:
        raise InvalidInput(
            "image.source_refused",
            f"the server reads {ascii(source)[:60]} for no tenant",
            hint="download it, and give the file: it is sent",
        )
    check_file_name(source)


@app.command("list")
def list_images(ctx: typer.Context, tenant: ListTenant = None, selector: Selector = None, sort: Sort = None) -> None:
    """List base images that VMs can be made of."""
    images = session_of(ctx).client.images(tenant, selector)
    show_list(images, COLUMNS, format_of(ctx), "no images yet: vgpuctl image add NAME FILE-OR-URL", sort)


@app.command("guest-driver")
def guest_driver(
    ctx: typer.Context,
    name: ImageName,
    version: Annotated[str, typer.Argument(help="Version of the NVIDIA driver in it, or 'none'.")],
    tenant: Whose = None,
) -> None:
    """Say which driver is in an image. Its VMs start only on hosts that take it."""
    image = session_of(ctx).client.set_guest_driver(name, None if version == "none" else version, tenant)
    known = shown(image["guest_driver"]) if image["guest_driver"] else "nobody knows which driver is in it"
    show(image, format_of(ctx), lambda: [f"{_name(image)}: {known}"])


@app.command("show")
def show_image(ctx: typer.Context, name: ImageName, tenant: Whose = None) -> None:
    """Show one base image."""
    image = session_of(ctx).client.image(name, tenant)
    show(image, format_of(ctx), lambda: _details(image))


def _details(image: Json) -> list[str]:
    return render_details(
        [
            ("name", shown(image["name"])),
            ("whose", _whose(image)),
            ("format", shown(image["format"])),
            ("size", _size(image["size_bytes"])),
            ("disk", _size(image["virtual_size_bytes"])),
            ("SHA-256", shown(image["sha256"])),
            ("guest driver", shown(image["guest_driver"] or "not known")),
            ("created", show_time(image["created_at"])),
            *said_of(image),
        ]
    )


@app.command("set")
def set_image(
    ctx: typer.Context,
    name: ImageName,
    tenant: Whose = None,
    description: Description = None,
    label: Label = None,
    unlabel: Unlabel = None,
) -> None:
    """Set an image's description and labels."""
    changes = something_said(description, label, unlabel)
    image = session_of(ctx).client.describe_image(name, changes, tenant)
    show(image, format_of(ctx), lambda: _details(image))


@app.command("remove")
def remove(ctx: typer.Context, name: ImageName, tenant: Whose = None, yes: Yes = False) -> None:
    """Forget a base image that no VM uses."""
    confirm("remove image", [name], yes=yes)
    session_of(ctx).client.remove_image(name, tenant)
    show({"name": name, "removed": True}, format_of(ctx), lambda: [f"{name} is removed"])
