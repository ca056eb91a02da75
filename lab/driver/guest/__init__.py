# SPDX-License-Identifier: Apache-2.0
"""Writes a guest driver, called and laid out as NVIDIA's ``.run`` files are. The guest compiles it."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

_HERE = Path(__file__).parent
_BROUGHT = ("Kbuild", "nvidia.c", "cuda.c", "nvidia-smi", "nvidia-gridd.service")


def write_guest_bundle(directory: Path, version: str) -> Path:
    """The file, in ``directory``."""
    target = f"NVIDIA-Linux-x86_64-{version}-grid"
    script = (_HERE / "installer").read_text().replace("@TARGET@", target).replace("@VERSION@", version)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as to:
        for name in _BROUGHT:
            to.add(_HERE / name, name, filter=_plain)
    path = directory / f"{target}.run"
    path.write_bytes(script.encode() + packed.getvalue())
    path.chmod(0o755)
    return path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    return member
