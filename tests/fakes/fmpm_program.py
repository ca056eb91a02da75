# SPDX-License-Identifier: Apache-2.0
"""The lab's fmpm, compiled once for a process of tests."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).parents[2] / "lab/tools/fabric/fmpm.c"


@functools.cache
def fmpm() -> Path:
    """The program; its directory goes with the process."""
    directory = tempfile.TemporaryDirectory()
    _kept.append(directory)
    program = Path(directory.name) / "fmpm"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, _SOURCE], check=True, timeout=120)
    return program


_kept: list[tempfile.TemporaryDirectory[str]] = []
