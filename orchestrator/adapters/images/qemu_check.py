# SPDX-License-Identifier: Apache-2.0
"""What ``qemu-img check`` says of a qcow2 image, in a process that can reach that one file and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.adapters.images.confined import FAILED
from orchestrator.adapters.images.refused import checker_missing, unsafe

_SECONDS: Final = 900.0
_CHECKED: Final = frozenset({0, 2, 3})
"""Exit codes: whole, damaged, with clusters that nobody uses."""
_MAX_SAID: Final = 64 * 1024


@dataclass(frozen=True)
class Checked:
    errors: int
    end: int
    """Where the last cluster that is used ends, in bytes."""


def check(path: Path) -> Checked:
    """:raises InvalidInput: ``image.unsafe``: it could not be checked within bounds
    :raises Fatal: ``image.checker_missing``
    """
    done = run_confined(path, (), ("check", "--output=json", "-f", "qcow2", str(path)), _SECONDS)
    if done.returncode not in _CHECKED or len(done.stdout) > _MAX_SAID:
        raise unsafe("could not be checked: qemu-img check refuses it")
    report = json.loads(done.stdout)
    return Checked(errors=report["check-errors"] + report.get("corruptions", 0), end=report.get("image-end-offset", 0))


def run_confined(
    path: Path, into: tuple[str, ...], words: tuple[str, ...], seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """``qemu-img`` with these words, where it can read that one file. ``into``: what it may write, as confined.py says.

    :raises InvalidInput: ``image.unsafe``: it does not come to an end; :raises Fatal: ``image.checker_missing``
    """
    program = shutil.which("qemu-img")
    if program is None:
        raise checker_missing("it is not installed")
    confined = [sys.executable, "-I", "-m", "orchestrator.adapters.images.confined", str(path), *into]
    try:
        done = subprocess.run(
            [*confined, program, *words],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise unsafe(f"could not be checked within {seconds:.0f} seconds") from error
    if done.returncode == FAILED:
        raise checker_missing("it cannot be confined")
    return done
