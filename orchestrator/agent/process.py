# SPDX-License-Identifier: Apache-2.0
"""Child processes: argument lists only, no shell, always a deadline."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import IO


@dataclass(frozen=True)
class Finished:
    """How a child ended. ``code`` is negative for a signal."""

    code: int
    output: str
    """stdout and stderr as they came, at most the last 8 KiB; all of it where a limit was given."""


class ChildHangs(Exception):
    """The child was still running at its deadline. It was told to die and may be unable to (D state)."""


class ChildTalksTooMuch(Exception):
    """The child printed more than was asked of it, and was told to die."""


PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where children are looked for."""
_ENVIRONMENT = {"LC_ALL": "C", "PATH": PROGRAMS}
_KEPT_OUTPUT = 8192
_DEATH_SECONDS = 0.2
_PIECE = 1024 * 1024
_POLL_S = 0.5


def run(
    argv: Sequence[str],
    *,
    limit_s: float,
    most_bytes: int | None = None,
    ended: Event | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
) -> Finished:
    """Run ``argv`` to its end. ``most_bytes``: of a program that need not be believed. ``ended``: set when it must.
    ``environment``: beside what all children have.

    :raises ChildHangs: it did not end within ``limit_s`` or before ``ended``. It is not waited for: a process in the
        kernel's uninterruptible sleep cannot be killed, and whoever waits for it hangs as well.
    :raises ChildTalksTooMuch: it printed more than ``most_bytes``
    :raises OSError: it could not be started.
    """
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**_ENVIRONMENT, **_library_path(), **(environment or {})},
        close_fds=True,
    )
    try:
        if most_bytes is not None and process.stdout is not None:
            output = _at_most(process, process.stdout, limit_s, most_bytes)
            return Finished(process.returncode, output.decode(errors="replace"))
        output = process.communicate(timeout=limit_s)[0] if ended is None else _until(process, limit_s, ended)
    except subprocess.TimeoutExpired as error:
        process.kill()
        _reap(process)
        raise ChildHangs(f"{argv[0]} did not end within {limit_s:g} s") from error
    return Finished(process.returncode, output[-_KEPT_OUTPUT:].decode(errors="replace"))


def pour(
    argv: Sequence[str],
    take: Callable[[bytes], object],
    *,
    limit_s: float,
    ended: Event,
    environment: Mapping[str, str],
) -> Finished:
    """Run ``argv`` and give ``take`` what it prints, piece by piece; the output that is returned is stderr's. What
    ``take`` raises ends it.

    :raises ChildHangs: as :func:`run`; :raises OSError: it could not be started."""
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints,
            env={**_ENVIRONMENT, **_library_path(), **environment},
        )  # fmt: skip
        try:
            while piece := _piece(process, deadline, ended):
                take(piece)
            process.wait(_DEATH_SECONDS + max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise ChildHangs(f"{argv[0]} did not end within {limit_s:g} s") from error
        finally:
            process.kill()
            _reap(process)
        complaints.seek(0)
        return Finished(process.returncode, complaints.read(_KEPT_OUTPUT).decode(errors="replace"))


def _piece(process: subprocess.Popen[bytes], deadline: float, ended: Event) -> bytes:
    """b"": it prints nothing any more. :raises subprocess.TimeoutExpired: it is to end"""
    if process.stdout is None:
        return b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while not ready.select(_POLL_S):
            if ended.is_set() or time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, 0.0)
    if ended.is_set():
        raise subprocess.TimeoutExpired(process.args, 0.0)
    return os.read(process.stdout.fileno(), _PIECE)


def _until(process: subprocess.Popen[bytes], limit_s: float, ended: Event) -> bytes:
    """:raises subprocess.TimeoutExpired: it has not ended"""
    deadline = time.monotonic() + limit_s
    while True:
        left = deadline - time.monotonic()
        try:
            return process.communicate(timeout=min(left, _POLL_S))[0]
        except subprocess.TimeoutExpired:
            if left <= _POLL_S or ended.is_set():
                raise


def _at_most(process: subprocess.Popen[bytes], pipe: IO[bytes], limit_s: float, most_bytes: int) -> bytes:
    """:raises subprocess.TimeoutExpired: it has not ended"""
    output, deadline = b"", time.monotonic() + limit_s
    with selectors.DefaultSelector() as ready, pipe:
        ready.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and ready.select(left):
            chunk = os.read(pipe.fileno(), _KEPT_OUTPUT)
            if not chunk:
                process.wait(max(0.0, deadline - time.monotonic()))
                return output
            output += chunk
            if len(output) > most_bytes:
                process.kill()
                _reap(process)
                raise ChildTalksTooMuch(f"{process.args!a} printed more than {most_bytes} bytes"[:300])
    raise subprocess.TimeoutExpired(process.args, limit_s)


def _library_path() -> dict[str, str]:
    value = os.environ.get("LD_LIBRARY_PATH")
    return {} if value is None else {"LD_LIBRARY_PATH": value}


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Give an ordinary child the moment it takes to die, so that it does not stay a zombie."""
    try:
        process.wait(timeout=_DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.stdout is not None:
            process.stdout.close()
