# SPDX-License-Identifier: Apache-2.0
"""Writing to a kernel file that may never return: the write is made by a child with a deadline."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.agent.sysfs import reading
from orchestrator.agent.sysfs.errno_table import error_for
from orchestrator.core.errors import Unknown

WRITE_SECONDS = 30.0

_CHILD = """
import os, sys
try:
    file = os.open(sys.argv[1], os.O_WRONLY)
    os.write(file, sys.argv[2].encode())
except OSError as error:
    sys.exit(error.errno)
"""
"""The exit code is the errno, so that it cannot get lost in somebody's translated text."""


def child_argv(path: Path, value: str) -> list[str]:
    """The child that writes ``value`` to ``path``."""
    return [sys.executable, "-I", "-S", "-c", _CHILD, str(path), value]


def write_errno(path: Path, value: str, *, limit_s: float = WRITE_SECONDS) -> int:
    """0, or the errno of opening or writing.

    :raises Unknown: ``vgpu.create_hung`` when the kernel did not come back in time; read the state, then decide
    """
    try:
        return run(child_argv(path, value), limit_s=limit_s).code
    except ChildHangs as error:
        raise Unknown(
            "vgpu.create_hung",
            "the GPU driver did not answer in time",
            hint="look at the host's kernel log; a vGPU that appears later is given back",
            details=f"writing {value!r} to {path} took over {limit_s:g} s",
        ) from error


def is_being_written(paths: Paths, path: Path) -> bool:
    """Whether a child of ours, this agent's or a former one's, is still in the kernel with a write to ``path``.

    Read from the command lines of all processes: a child in uninterruptible sleep outlives the agent that made it.
    """
    for process in reading.names(paths.proc):
        if process.isdecimal():
            words = (reading.text(paths.proc / process / "cmdline") or "").split("\0")
            if _CHILD in words and str(path) in words:
                return True
    return False


def write(path: Path, value: str, *, limit_s: float = WRITE_SECONDS) -> None:
    """:raises WorldError: by the table in errno_table.py"""
    number = write_errno(path, value, limit_s=limit_s)
    if number:
        raise error_for(number, path, value)
