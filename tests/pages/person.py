# SPDX-License-Identifier: Apache-2.0
"""A reader who types what a page says, in a directory of their own. Plain commands of ours are run in this process."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.forked import ran
from tests.fakes.typed import PATH, Outcome, called, in_shell
from tests.pages.reading import simple_commands

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 300
_NOT_PLAIN: Final = re.compile(r"[|&;$`~<]|\w\(")
_FILE: Final = re.compile(r" > (\S+)$")
_BECOMES_SSH: Final = "ssh"
_BECOMES_SERVER: Final = "server"
"""Commands whose process goes on as another program."""
_NOT_OURS: Final = re.compile(r"(?<![\w.-])(/var/lib|/etc/|/run/|/usr/|/opt/|/backup|~/)")
"""Of the machine that the tests run on."""


def forked(words: list[str]) -> Outcome:
    """A command that goes on as another program of ours."""
    return Outcome(*ran("orchestrator.cli.main", words, os.environ, LIMIT_S))


@dataclass(frozen=True)
class Person:
    """``variables``: of the environment, None takes one away."""

    here: Path
    variables: dict[str, str | None]
    patch: pytest.MonkeyPatch
    heard: pytest.CaptureFixture[str]

    def __post_init__(self) -> None:
        self.here.mkdir(parents=True, exist_ok=True)
        self.patch.chdir(self.here)
        for name, value in self.variables.items():
            if value is None:
                self.patch.delenv(name, raising=False)
            else:
                self.patch.setenv(name, value)

    def types(self, line: str) -> Outcome:
        """:raises AssertionError: the line is about the machine that the tests run on"""
        assert _NOT_OURS.search(line) is None, line
        file = _FILE.search(line)
        words = [] if _NOT_PLAIN.search(line) else simple_commands(line)[0]
        if words[:1] != ["vgpuctl"] or words[1] == _BECOMES_SSH:
            return self.script(line)
        said = forked(words[1:]) if words[1] == _BECOMES_SERVER else called(words[1:], self.heard)
        if file is not None:
            Path(shlex.split(file[1])[0]).write_text(said.out)
        return said

    def script(self, text: str, program: tuple[str, ...] = ("bash", "-euc")) -> Outcome:
        """In one process."""
        return in_shell(text, self.here, {**os.environ, "PATH": PATH}, limit_s=LIMIT_S, program=program)

    def elsewhere(self) -> None:
        """On a machine where no server is, as somebody who is known by a token alone."""
        self.patch.delenv("VGPUCTL_STATE")
        self.patch.delenv("VGPUCTL_TENANT")
        self.patch.setenv("XDG_STATE_HOME", str(self.here / "nothing-here"))
