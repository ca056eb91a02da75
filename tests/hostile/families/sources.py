# SPDX-License-Identifier: Apache-2.0
"""What the server is told to read: addresses that are its own in every spelling, and paths that lead elsewhere."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images.sources import Downloads, Sources
from orchestrator.core.errors import InvalidInput
from tests.hostile.families.family import Attack, Family

OWN = (
    (127, 0, 0, 1), (127, 0, 0, 2), (127, 1, 2, 3), (127, 255, 255, 254), (0, 0, 0, 0), (169, 254, 169, 254),
    (169, 254, 0, 1), (169, 254, 255, 255), (224, 0, 0, 1), (239, 255, 255, 255),
)  # fmt: skip
LINKS = (
    "::1",
    "::",
    "0:0:0:0:0:0:0:1",
    "fe80::1",
    "fe80::a9fe:a9fe",
    "febf::1",
    "ff02::1",
    "ff0e::1",
    "0::1",
    "::0001",
)
FORMS = ("http://{host}:{port}/x", "https://{host}:{port}/x", "http://{host}:{port}", "http://{host}:{port}/?x#y")


def _spellings(address: tuple[int, int, int, int]) -> Iterator[str]:
    a, b, c, d = address
    number = a << 24 | b << 16 | c << 8 | d
    yield from (f"{a}.{b}.{c}.{d}", str(number), hex(number), f"0{number:o}", f"{a:#x}.{b:#x}.{c:#x}.{d:#x}")
    yield from (f"0{a:o}.0{b:o}.0{c:o}.0{d:o}", f"{a}.{b}.{c << 8 | d}", f"{a}.{b << 16 | c << 8 | d}")
    yield from (f"[::ffff:{a}.{b}.{c}.{d}]", f"[::ffff:{a << 8 | b:x}:{c << 8 | d:x}]")
    yield from (f"[0:0:0:0:0:ffff:{a}.{b}.{c}.{d}]", f"{a:#X}.{b}.{c}.{d}", f"{a}.{b:#x}.0{c:o}.{d}")


def _url_refused(form: str, host: str, where: Path) -> None:
    sources = Sources(files=Readable(never_below=where), downloads=Downloads())
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = form.format(host=host, port=server.getsockname()[1])
        _refused(sources, url)
        assert not _asked(server)


def _refused(sources: Sources, source: str) -> None:
    with pytest.raises(InvalidInput) as caught, sources.open(source) as chunks:
        b"".join(chunks)
    assert caught.value.code == "image.source_refused"
    assert caught.value.message.isprintable()


def _asked(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def _linked_parent(path: Path, target: Path) -> None:
    (path.parent / "away").symlink_to(target.parent)
    path.parent.joinpath("name").write_text(str(path.parent / "away" / target.name))


def _hard_link(path: Path, target: Path) -> None:
    os.link(target, path)


def _through_dots(path: Path, target: Path) -> None:
    path.parent.joinpath("name").write_text(str(path.parent / ".." / target.parent.name / target.name))


def _itself(path: Path, target: Path) -> None:
    path.parent.joinpath("name").write_text(str(target))


def _through_proc(path: Path, target: Path) -> None:
    path.parent.joinpath("name").write_text(f"/proc/self/root{target}")


def _twice(path: Path, target: Path) -> None:
    (path.parent / "first").symlink_to(target)
    path.symlink_to(path.parent / "first")


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "a link": _link, "a link to a link": _twice, "a linked directory": _linked_parent, "a hard link": _hard_link,
    "dots": _through_dots, "its own path": _itself, "/proc": _through_proc,
}  # fmt: skip
FILES = ("vgpuctl.sqlite", "vgpuctl.sqlite-wal", "executor.lock", "config.yaml", "secrets/database_key",
         "secrets/agent_key", "secrets/hosts/gpu-1/provisioning_key", "images/x.qcow2", "driver-bundles/y")  # fmt: skip


def _state_refused(way: str, file: str, depth: int, where: Path) -> None:
    """A file of the state directory, reached from a directory so deep beside it."""
    target = where / "state" / file
    target.parent.mkdir(parents=True)
    target.write_bytes(b"secret")
    outside = where.joinpath("outside", *("deeper" * depth)[:depth])
    outside.mkdir(parents=True)
    WAYS[way](outside / "image", target)
    named = outside / "name"
    source = named.read_text() if named.exists() else str(outside / "image")
    files = Readable(never_below=where / "state")
    _refused(Sources(files=files, downloads=Downloads()), source)
    assert target.read_bytes() == b"secret"


ADDRESSES: dict[str, Attack] = {
    form.format(host=host, port="port"): partial(_url_refused, form, host)
    for form, host in product(
        FORMS, dict.fromkeys([one for address in OWN for one in _spellings(address)] + [f"[{one}]" for one in LINKS])
    )
}
PATHS: dict[str, Attack] = {
    f"{file} by {way}, {depth} deep": partial(_state_refused, way, file, depth)
    for file, way, depth in product(FILES, WAYS, range(3))
}

FAMILIES = (
    Family("addresses of the server's own machine and link", "refused before anybody is asked", ADDRESSES),
    Family("paths into the server's own directory", "refused", PATHS),
)
