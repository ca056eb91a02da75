# SPDX-License-Identifier: Apache-2.0
"""A real server process on a real unix socket, over whatever services the module has."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.version import VERSION

FAKE = "tests.fakes.serve"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.fakes.loaded_server"])


def client_of(state: Path) -> Client:
    """Of the server that serves there, with a connection of its own."""
    connection = connect_running(state)
    assert connection is not None, f"{state.name} does not answer{_last_words(state)}"
    return Client(connection)


def _last_words(state: Path) -> str:
    return "".join(f": {log.read_text(errors='replace')[-2000:]}" for log in state.glob("serve.log"))


class _Forked:
    """A server of the process that has loaded already what servers need: that takes as long as many a test."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = _CONTEXT.Process(target=_serve, args=(module, arguments, environment, log), daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self, timeout: float) -> None:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "the server does not end"


def _serve(module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    sys.exit(import_module(module).main())


def _started(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path, tree: Path
) -> subprocess.Popen[bytes]:
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
    begin = _Forked if tree is None else partial(_started, tree=tree)
    process = begin(module, arguments, environment, log)
    try:
        wait_until_it_answers(process, state, timeout_s)
        yield state
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_until_it_answers(process: subprocess.Popen[bytes] | _Forked, state: Path, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while connect_running(state) is None:
        assert process.poll() is None, _last_words(state)
        assert time.monotonic() < deadline, "the server did not answer"
        time.sleep(0.05)
