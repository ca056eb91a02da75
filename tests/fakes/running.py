# SPDX-License-Identifier: Apache-2.0
"""A real server process on a real unix socket, over whatever services the module has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.version import VERSION

FAKE = "tests.fakes.serve"


def client_of(state: Path) -> Client:
    """Of the server that serves there, with a connection of its own."""
    connection = connect_running(state)
    assert connection is not None, f"{state.name} does not answer"
    return Client(connection)


@contextmanager
def running_server(
    state: Path, *arguments: str, module: str = FAKE, timeout_s: float = 300, tree: Path | None = None
) -> Iterator[Path]:
    """Serves in ``state`` while it is open; begins within ``timeout_s``. The fake one is of the build that the tests
    are of, whatever is edited meanwhile. ``tree``: of another version of the program."""
    if module == FAKE and "--version" not in arguments:
        arguments += ("--version", VERSION)
    state.mkdir(parents=True, exist_ok=True)
    with (state / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "VGPUCTL_STATE": str(state)},
            cwd=tree,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until_it_answers(process, state, timeout_s)
        yield state
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_it_answers(process: subprocess.Popen[bytes], state: Path, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while connect_running(state) is None:
        assert process.poll() is None, [log.read_text() for log in state.glob("serve.log")]
        assert time.monotonic() < deadline, "the server did not answer"
        time.sleep(0.05)
