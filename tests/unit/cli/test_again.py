# SPDX-License-Identifier: Apache-2.0
"""The same command again: what is so already is said in one line, nothing old is told as new."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.cli.progress import PlainLines
from tests.fakes.typed import COMMAND, Cli
from tests.unit.cli.test_progress import operation_of, step_of

CREATE = ("create-vm", "again", "--profile", "t4-small")


@pytest.fixture
def vm(cli: Cli) -> None:
    assert cli(*CREATE).code == 0


def test_a_repeated_command_replays_no_steps(cli: Cli, vm: None) -> None:
    assert (cli(*CREATE).out, cli(*CREATE).err) == ("again is running already\n", "")


def test_a_vm_that_is_stopped_or_runs_already_is_said_so_in_one_line(cli: Cli, vm: None) -> None:
    assert cli("start-vm", "again").out == "again is running already\n"
    assert cli("stop-vm", "again").code == 0
    done = cli("stop-vm", "again")
    assert (done.code, done.out, done.err) == (0, "again is stopped already\n", "")
    assert cli("start-vm", "again").code == 0


def test_who_joins_an_operation_hears_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines(joined=True)
    lines.update(operation_of("running", step_of("disk", "done"), step_of("start", "running")))
    lines.update(operation_of("done", step_of("disk", "done"), step_of("start", "done")))
    assert capsys.readouterr().err.splitlines() == [
        "it is being done already: 1 of 2 steps",
        "✓ start: done (1.5 s)",
    ]


@pytest.mark.parametrize("shell", ['"$@" </dev/null', '"$@" <&-', 'printf hello | "$@"'])
def test_a_console_whose_input_has_ended_ends(state: Path, tmp_path: Path, vm: None, shell: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "VGPUCTL_STATE": str(state)}
    words = ["bash", "-c", shell, "bash", str(COMMAND), "console", "again"]
    assert subprocess.run(words, env=environment, capture_output=True, timeout=60).returncode == 0
