# SPDX-License-Identifier: Apache-2.0
"""Child processes: argument lists only, no shell, always a deadline."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finished:
    """How a child ended. ``code`` is negative for a signal."""

    code: int
    output: str
    """stdout and stderr as they came, at most the last 8 KiB."""


class ChildHangs(Exception):
    """The child was still running at its deadline. It was told to die and may be unable to (D state)."""


_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_KEPT_OUTPUT = 8192
_DEATH_SECONDS = 0.2


def run(argv: Sequence[str], *, limit_s: float) -> Finished:
    """Run ``argv`` to its end.

    :raises ChildHangs: it did not end within ``limit_s``. It is not waited for: a process in the kernel's
        uninterruptible sleep cannot be killed, and whoever waits for it hangs as well.
    :raises OSError: it could not be started.
    """
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**_ENVIRONMENT, **_library_path()},
        close_fds=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        _reap(process)
        raise ChildHangs(f"{argv[0]} did not end within {limit_s:g} s") from error
    return Finished(process.returncode, output[-_KEPT_OUTPUT:].decode(errors="replace"))


def _library_path() -> dict[str, str]:
    value = os.environ.get("LD_LIBRARY_PATH")
    return {} if value is None else {"LD_LIBRARY_PATH": value}


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Give an ordinary child the moment it takes to die, so that it does not stay a zombie."""
    try:
        process.communicate(timeout=_DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        if process.stdout is not None:
            process.stdout.close()
