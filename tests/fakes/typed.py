# SPDX-License-Identifier: Apache-2.0
"""What is typed and what is answered: in a shell, by the installed command, or by a call of it in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.main import run

COMMAND = Path(sys.executable).with_name("vgpuctl")
PATH = f"{COMMAND.parent}:{os.environ['PATH']}"
"""Where our command is found first."""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]


def called(words: Sequence[str], heard: pytest.CaptureFixture[str]) -> Outcome:
    """In this process, which has loaded already what a command loads."""
    heard.readouterr()
    code = run(list(words))
    said = heard.readouterr()
    return Outcome(code, said.out, said.err)


def cli_of(state: Path, patch: pytest.MonkeyPatch, heard: pytest.CaptureFixture[str]) -> Cli:
    """Commands for the server that serves in ``state``, on a screen of no particular width."""
    patch.setenv("VGPUCTL_STATE", str(state))
    patch.delenv("COLUMNS", raising=False)
    return lambda *words: called(words, heard)


def in_shell(
    text: str, here: Path, environment: Mapping[str, str], *,
    limit_s: float, program: Sequence[str] = ("bash", "-c"), together: bool = False,
) -> Outcome:  # fmt: skip
    """``text`` in one process. ``together``: what is complained of is in ``out``."""
    done = subprocess.run(
        [*program, text], cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE, text=True, timeout=limit_s,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr or "")
