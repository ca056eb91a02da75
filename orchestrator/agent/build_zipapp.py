# SPDX-License-Identifier: Apache-2.0
"""Makes the one file that is put on hosts: our code and its few pure-Python dependencies, as they are installed here.

The same inputs give the same bytes, and the file's version is a digest of them. Runs on the controller.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.resources
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.agent.version import BUILD_FILE

_DISTRIBUTIONS = ("attrs", "cattrs", "exceptiongroup", "nvidia-ml-py", "typing_extensions")
"""exceptiongroup and typing_extensions are what cattrs needs on Python 3.10."""

_LEFT_OUT = ("cattr/", "cattrs/preconf/", "example.py")
"""What nothing in the agent imports; Python reads a zip's whole directory at every start."""

_MAIN = """\
import sys
from orchestrator.agent.main import main
sys.exit(main())
"""
_SHEBANG = b"#!/usr/bin/python3\n"
_STAMP = (2020, 1, 1, 0, 0, 0)


def build_agent(path: Path) -> str:
    """Write the agent to ``path`` unless it is there already; the version that it will report.

    :raises RuntimeError: a dependency is not installed here
    """
    files = dict(sorted(_inputs()))
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    version = f"{importlib.metadata.version('vgpuctl')}+{digest.hexdigest()[:12]}"
    if not _is_built(path, version):
        _write(path, {**files, f"orchestrator/agent/{BUILD_FILE}": version.encode()}, version)
    return version


def _is_built(path: Path, version: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment == version.encode()
    except (OSError, zipfile.BadZipFile):
        return False


def _write(path: Path, files: Mapping[str, bytes], version: str) -> None:
    buffer = io.BytesIO(_SHEBANG)
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = version.encode()
        for name in sorted(files):
            archive.writestr(_entry(name), files[name])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    part.write_bytes(buffer.getvalue())
    part.chmod(0o755)
    part.replace(path)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _STAMP)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _inputs() -> Iterator[tuple[str, bytes]]:
    yield "__main__.py", _MAIN.encode()
    root = Path(str(importlib.resources.files("orchestrator")))
    for part in ("__init__.py", "core", "agent"):
        for file in sorted([root / part] if part.endswith(".py") else (root / part).rglob("*.py")):
            if file.name != Path(__file__).name:
                yield f"orchestrator/{file.relative_to(root).as_posix()}", file.read_bytes()
    for distribution in _DISTRIBUTIONS:
        yield from _distribution(distribution)


def _distribution(name: str) -> Iterator[tuple[str, bytes]]:
    """Modules and licence texts of an installed distribution."""
    try:
        files = importlib.metadata.files(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise RuntimeError(f"{name} is not installed, so the agent cannot be built") from error
    for file in files or ():
        path = file.as_posix()
        wanted = (file.suffix == ".py" and ".." not in file.parts) or "LICENSE" in file.name.upper()
        if wanted and not path.startswith(_LEFT_OUT):
            yield path, Path(str(file.locate())).read_bytes()
