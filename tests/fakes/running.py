# SPDX-License-Identifier: Apache-2.0
"""A real server process on a real unix socket, over whatever services the module has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.version import VERSION
from tests.fakes.forked import Forked, Program

FAKE = "tests.fakes.serve"


def client_of(state: Path) -> Client:
    """Of the server that serves there, with a connection of its own."""
    connection = connect_running(state)
    assert connection is not None, f"{state.name} does not answer{_last_words(state)}"
    return Client(connection)


def _last_words(state: Path) -> str:
    return "".join(f": {log.read_text(errors='replace')[-2000:]}" for log in state.glob("serve.log"))


def _started(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path, tree: Path | None
) -> Program:
    if tree is None:
        return Forked(module, arguments, environment, log, log)
    words = [sys.executable, "-m", module, *arguments]
    with log.open("wb") as file:
        return subprocess.Popen(words, env=environment, cwd=tree, stdout=file, stderr=file)


@contextmanager
def running_server(
    state: Path, *arguments: str, module: str = FAKE, timeout_s: float = 300, tree: Path | None = None
) -> Iterator[Path]:
    """Serves in ``state`` while it is open; begins within ``timeout_s``. The fake one is of the build that the tests
    are of, whatever is edited meanwhile. ``tree``: it is started there, as people start one, and is of that version."""
    if module == FAKE and "--version" not in arguments:
        arguments += ("--version", VERSION)
    state.mkdir(parents=True, exist_ok=True)
    environment, log = {**os.environ, "VGPUCTL_STATE": str(state)}, state / "serve.log"
    process = _started(module, arguments, environment, log, tree)
    try:
        wait_until_it_answers(process, state, timeout_s)
        yield state
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_it_answers(process: Program, state: Path, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while connect_running(state) is None:
        assert process.poll() is None, _last_words(state)
        assert time.monotonic() < deadline, "the server did not answer"
        time.sleep(0.05)
