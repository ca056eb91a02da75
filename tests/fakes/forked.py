# SPDX-License-Identifier: Apache-2.0
"""Programs of ours in forks of a process that has loaded already what servers need: to load it takes as long as many a
test. Whose start, way of being typed or version is what is tested is a process of its own instead."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final, NoReturn

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.fakes.loaded_server"])


class Forked:
    """``python -m module words`` that has begun, with the members of :class:`subprocess.Popen` that tests use.

    What it writes is added to ``out`` and ``err``, which may be the same file."""

    def __init__(
        self, module: str, words: Sequence[str], environment: Mapping[str, str], out: Path, err: Path,
        said: Path = Path(os.devnull),
    ) -> None:  # fmt: skip
        self._words = (module, *words)
        for file in (out, err):
            file.touch()  # who reads it need not wait for the fork
        arguments = (module, tuple(words), dict(environment), Path.cwd(), said, out, err)
        self._process = _CONTEXT.Process(target=_run, args=arguments, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(SIGTERM)

    def kill(self) -> None:
        self.send_signal(SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """:raises subprocess.TimeoutExpired: it has not ended by then"""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._words, timeout)
        return code


Program = Forked | subprocess.Popen[bytes]


def ran(
    module: str, words: Sequence[str], environment: Mapping[str, str], limit_s: float, said: str = ""
) -> tuple[int, str, str]:
    """Exit code, what it wrote, what it complained of."""
    with tempfile.TemporaryDirectory() as name:
        heard, out, err = (Path(name) / file for file in ("in", "out", "err"))
        heard.write_text(said)
        program = Forked(module, words, environment, out, err, heard)
        try:
            code = program.wait(limit_s)
        finally:
            program.kill()
        return code, out.read_text(), err.read_text()


def _run(
    module: str, words: Sequence[str], environment: Mapping[str, str], here: Path, said: Path, out: Path, err: Path
) -> None:
    added = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, (path, flags) in enumerate(((said, os.O_RDONLY), (out, added), (err, added))):
        file = os.open(path, flags, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - it is the process's own
    os.chdir(here)
    vars(os)["execve"] = _become
    sys.exit(_ended(module, words, environment))


def _ended(module: str, words: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """How ``python -m module words`` ends."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *words]
    code: int | None = import_module(module).main()
    return code


def _become(_python: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Another program of ours, as commands do. That one really is what they become, tests/contract/backup shows."""
    at = arguments.index("-m")
    code = _ended(arguments[at + 1], arguments[at + 2 :], environment)
    for file in (sys.stdout, sys.stderr):
        file.flush()
    os._exit(code or 0)
