# SPDX-License-Identifier: Apache-2.0
"""Runs other programs: the lab's only door to subprocess."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import LabError

Argv = Sequence[str | Path]


def run(argv: Argv, *, log: Path | None = None, env: Mapping[str, str] | None = None, limit_s: float = 1800) -> str:
    """Standard output of a command that must succeed; with ``log`` all output is appended there instead.

    Raises LabError with the last line the command wrote.
    """
    words = [str(word) for word in argv]
    try:
        if log is None:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=limit_s, check=False
            )
            said = done.stderr or done.stdout
        else:
            with log.open("a") as file:
                done = subprocess.run(
                    words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, env=env,
                    timeout=limit_s, check=False,
                )  # fmt: skip
            said = log.read_text(errors="replace")
    except FileNotFoundError as error:
        raise LabError(f"{words[0]} is not installed", "lab/packages.txt lists the packages the lab needs") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{words[0]} did not end within {limit_s:.0f} s") from error
    if done.returncode != 0:
        last = said.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise LabError(f"{words[0]} failed: {last[0]}", f"whole output: {log}" if log else "")
    return done.stdout or ""


def replace_process(argv: Argv) -> None:
    """Becomes the command (terminal, signals and exit code are its own)."""
    words = [str(word) for word in argv]
    os.execvp(words[0], words)


def start(argv: Argv, *, log: Path, directory: Path) -> int:
    """Starts a process of its own session that outlives us; its pid."""
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            cwd=directory, start_new_session=True,
        )  # fmt: skip
    return process.pid
