# SPDX-License-Identifier: Apache-2.0
"""A real server process on a real unix socket, over whatever services the module has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.version import VERSION
from tests.fakes.forked import Forked, Program

FAKE = "tests.fakes.serve"
HOSTS = "orchestrator.sim.hosts_process"


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
    are of, whatever is edited meanwhile. ``tree``: it is started there, as people start one, and is of that version.
    The hosts of a file after ``--simulate`` are a fork, too, and their guests have an address at once: what the server
    itself does with the file is in tests/simulated/test_serving.py."""
    if module == FAKE and "--version" not in arguments:
        arguments += ("--version", VERSION)
    state.mkdir(parents=True, exist_ok=True)
    environment, log = {**os.environ, "VGPUCTL_STATE": str(state)}, state / "serve.log"
    with ExitStack() as held:
        at = arguments.index("--simulate") + 1 if "--simulate" in arguments else 0
        if at and tree is None and (fleet := Path(arguments[at])).is_file():
            socket = held.enter_context(hosts_of(fleet, state))
            arguments = (*arguments[:at], str(socket), *arguments[at + 1 :])
        process = _started(module, arguments, environment, log, tree)
        try:
            wait_until_it_answers(process, state, timeout_s)
            yield state
        finally:
            process.terminate()
            process.wait(timeout=60)


@contextmanager
def hosts_of(fleet: Path, directory: Path, *, boots_s: float = 0.0) -> Iterator[Path]:
    """The socket of a process that simulates the hosts of that file. What they have stays in ``directory``.
    ``boots_s``: seconds until a guest that was started has an address."""
    path, log, hold = (directory / name for name in ("hosts.sock", "hosts.log", "hosts.hold"))
    for file in (log, hold):
        file.unlink(missing_ok=True)
    os.mkfifo(hold)
    held = os.open(hold, os.O_RDWR)
    words = (str(fleet), str(path), str(directory / "machines"), "--guest-boots-s", str(boots_s))
    try:
        hosts = Forked(HOSTS, words, os.environ, log, log, hold)
        while log.read_text() != "{}\n":
            assert hosts.poll() is None, log.read_text()
            time.sleep(0.02)
        yield path
    finally:
        os.close(held)  # it serves for as long as somebody can write to it
    hosts.wait(timeout=60)


def wait_until_it_answers(process: Program, state: Path, timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while connect_running(state) is None:
        assert process.poll() is None, _last_words(state)
        assert time.monotonic() < deadline, "the server did not answer"
        time.sleep(0.05)
