# SPDX-License-Identifier: Apache-2.0
"""With ``-o json`` every command prints JSON: its answer, or its refusal on standard error with the exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.examples import EXAMPLES, examples_of
from orchestrator.cli.tree import ENTRIES, OUTPUTS, load
from tests.fakes.ports import own_port
from tests.fakes.running import running_server
from tests.fakes.typed import COMMAND, Cli, Outcome


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for word, child in command.commands.items():
            yield from _below(f"{words} {word}", child)
    else:
        yield words, command


SILENT_PORT = own_port()
LEAVES = [leaf for name, entry in ENTRIES.items() for leaf in _below(name, load(name, entry))]
TYPED = [
    example
    for words, command in LEAVES
    if words in EXAMPLES and any("-o" in one.opts for one in command.params)
    for example in examples_of(words)
    if not {"--watch", "--follow"} & set(shlex.split(example)) and " -o " not in f"{example} "
]
"""Nothing that they name is there. A login would open a browser."""


def test_every_command_has_the_option_that_is_not_listed_as_one_without() -> None:
    without = {words for words, command in LEAVES if not any("-o" in one.opts for one in command.params)}
    assert without == {words for words, form in OUTPUTS.items() if form is None}
    assert OUTPUTS.keys() <= dict(LEAVES).keys()


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("state")) as directory:
        yield directory


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def check(done: Outcome) -> None:
    """An answer that is JSON, which may be a list of mistakes, or a refusal that is."""
    if done.code in {0, 3} or done.out:
        json.loads(done.out)
    if done.code not in {0, 3} and (done.err or not done.out):
        assert set(json.loads(done.err.splitlines()[-1])["error"]) >= {"code", "message", "hint"}


@pytest.mark.parametrize("example", [one for one in TYPED if not one.startswith(("server stop", "login"))])
def test_of_what_is_not_there(cli: Cli, example: str) -> None:
    check(cli(*shlex.split(example), "-o", "json"))


@pytest.mark.parametrize("example", TYPED)
def test_of_a_server_that_does_not_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch, example: str) -> None:
    assert cli("context", "add", "away", "--url", f"https://127.0.0.1:{SILENT_PORT}").code == 0
    monkeypatch.setenv("VGPUCTL_CONTEXT", "away")
    monkeypatch.delenv("VGPUCTL_STATE")
    check(cli(*shlex.split(example), "-o", "json"))


def test_there_is_one_of_every_command_with_an_answer() -> None:
    assert len(TYPED) > 90


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_of_a_state_directory_that_no_server_serves(tmp_path: Path, output: str) -> None:
    """Nothing is settled, and no database or key is made."""
    words = [str(COMMAND), "server", "settle-restored", "-o", output]
    done = subprocess.run(
        words, env={"VGPUCTL_STATE": str(tmp_path / "none"), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert ("error" in json.loads(done.stderr)) if output == "json" else done.stderr.startswith("error: ")
    assert not (tmp_path / "none").exists()


def test_of_a_database_that_is_settled_while_no_server_runs(tmp_path: Path) -> None:
    with running_server(tmp_path / "state", module="orchestrator.server.serve"):
        pass
    words = [str(COMMAND), "server", "settle-restored", "-o", "json"]
    done = subprocess.run(
        words, env={"VGPUCTL_STATE": str(tmp_path / "state"), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert (done.returncode, told["hosts"], told["vms"], told["stuck"]) == (0, 0, 0, 0), done.stderr
