# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("fastapi", "httpx2", "pydantic", "rich", "sqlalchemy", "ssl", "uvicorn", "websockets", "yaml")


def _python(code: str, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "VGPUCTL_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("words", ["--help", "create-vm --help", "list-vms", "show-vm nobody", "list-vms -o json"])
def test_a_common_command_loads_nothing_heavy(state: Path, words: str) -> None:
    code = (
        "import sys; from orchestrator.cli.main import run; run(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    assert _python(code, state, *words.split()).stderr.splitlines()[-1] == "[]"


BROKEN = """
import sys
from orchestrator.cli import main
def run(arguments):
    raise ZeroDivisionError("a secret of the program")
main.run = run
main.main()
"""


def test_a_bug_is_one_line_with_a_number_that_the_log_knows(tmp_path: Path) -> None:
    outcome = _python(BROKEN, tmp_path)
    assert outcome.returncode == 70
    first, second = outcome.stderr.splitlines()
    number = first.removeprefix("error: unexpected error ").removesuffix(" [bug]")
    assert str(tmp_path / "cli.log") in second
    log = (tmp_path / "cli.log").read_text()
    assert number in log
    assert "ZeroDivisionError" in log


def test_a_bug_is_said_even_where_no_log_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = _python(BROKEN, tmp_path / "file")
    assert outcome.returncode == 70
    assert "Traceback" not in outcome.stderr


INTERRUPTED = """
import sys
from orchestrator.client.client import Client
from orchestrator.cli.main import main
def operation(self, operation_id, *, wait_s=None, since=None):
    raise KeyboardInterrupt
Client.operation = operation
main()
"""


def test_an_interrupt_leaves_the_operation_to_the_server(state: Path) -> None:
    outcome = _python(INTERRUPTED, state, "create-vm", "interrupted", "--profile", "t4-small")
    assert outcome.returncode == 130
    assert "The operation goes on. Watch it with: vgpuctl operation wait" in outcome.stderr
    assert "Traceback" not in outcome.stderr
