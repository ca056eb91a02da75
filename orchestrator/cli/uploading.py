# SPDX-License-Identifier: Apache-2.0
"""Files that a command names and the server keeps: opened by the command, as its caller, and sent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

import typer

from orchestrator.cli.output import printable
from orchestrator.cli.parameters import vm_and_snapshot
from orchestrator.cli.session import CliSession, Format
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.client.content import Content, Progress, open_content
from orchestrator.core.errors import InvalidInput
from orchestrator.core.vms.image import check_file_name

_MIB: Final = 1024 * 1024
_SHOWN_FROM: Final = 16 * _MIB
"""Smaller files are there before a bar would be."""
_DOES: Final = {"read": "reading", "sent": "sending"}


def image_key(image: Json) -> str:
    """``tenant/name`` of a tenant's, ``name`` of the site's."""
    return str(image["name"]) if image["tenant"] is None else f"{image['tenant']}/{image['name']}"


def image_left_out(
    client: Client, tenant: str, from_snapshot: str | None, from_backup: str | None, *, coming: Iterable[str] = ()
) -> str:
    """Of a VM whose image is not named: what the snapshot's VM has, or the backup's had; else the only one that there
    is, with those that are ``coming``.

    :raises InvalidInput: ``image.none``, ``image.choose``; :raises NotFound: the snapshot's VM, or the backup
    """
    if from_snapshot is not None:
        vm, _ = vm_and_snapshot(from_snapshot)
        return str(client.vm(vm, tenant)["image"])
    if from_backup is not None and (its := client.backup(from_backup, tenant).get("image")):
        return str(its)
    known = list(dict.fromkeys((*map(image_key, client.images(tenant)), *coming)))
    if len(known) == 1:
        return known[0]
    if not known:
        raise InvalidInput("image.none", "there is no base image yet", hint="run 'vgpuctl image add NAME FILE-OR-URL'")
    raise InvalidInput("image.choose", "there are several base images", hint=f"add --image, one of {', '.join(known)}")


def tell_of_volumes(client: Client, tenant: str, from_backup: str | None) -> None:
    """A VM that is made of a backup has none of the volumes that it holds: on standard error what makes them."""
    if from_backup is None:
        return
    backup = client.backup(from_backup, tenant)
    for volume in backup.get("volumes", ()):  # older servers have none
        if not volume["left_out"]:
            made = f"vgpuctl volume create NAME --from-backup {backup['id']}/{volume['name']} --tenant {tenant}"
            typer.echo(f"volume {volume['name']} of the backup is not made with it: '{printable(made)}'", err=True)


def take_image(session: CliSession, name: str, source: str, sha256: str | None, image_format: str | None) -> Json:
    """A base image out of a URL, which the server asks, or a file, which is read here."""
    if "://" in source:
        return session.client.add_image({"name": name, "source": source, "sha256": sha256, "format": image_format})
    check_file_name(source)
    with sending(session, Path(source), sha256) as content:
        return session.client.upload_image(name, content, image_format)


@contextmanager
def sending(session: CliSession, path: Path, sha256: str | None) -> Iterator[Content]:
    """A file to send, with a bar on a terminal and silence elsewhere. ``sha256``: what it has to hash to.

    :raises InvalidInput: ``file.…``
    """
    if not path.name or "\0" in str(path):
        raise InvalidInput("file.unreadable", "the file has no usable name", hint="give a file")
    with ExitStack() as stack:
        content = stack.enter_context(open_content(path, sha256=sha256))
        if content.size >= _SHOWN_FROM and _on_terminal(session):
            content.progress = stack.enter_context(_bar(content.size))
        yield content


def _on_terminal(session: CliSession) -> bool:
    seen = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in {None, "dumb"}
    return seen and session.format == Format.TABLE


@contextmanager
def _bar(size: int) -> Iterator[Progress]:
    """On the terminal, while it is open. rich is only loaded here: it takes a while."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=size)

        def told(way: Literal["read", "sent"], done: int) -> None:
            what = "the server checks it" if way == "sent" and done == size else _DOES[way]
            progress.update(task, completed=done, description=what)

        yield told
