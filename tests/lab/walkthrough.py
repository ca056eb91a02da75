# SPDX-License-Identifier: Apache-2.0
"""Types the ``console`` blocks of a page as a reader would: in one shell, command by command, each answer read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.typed import in_shell

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_END: Final = "\x1eend of the answer, status "

_NOT_OF_A_READER: Final = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "COLUMNS")
"""Of an outer make; tables are as wide as they have to be."""


@dataclass(frozen=True)
class Command:
    """One line that is typed, and what the page says is answered: ``…`` stands for anything."""

    line: str
    answer: str

    def is_answered_by(self, output: str) -> bool:
        """Columns may be wider or narrower than on the page."""
        pattern = re.escape(_squeezed(self.answer)).replace("…", ".*")
        return re.fullmatch(pattern, _squeezed(output), re.DOTALL) is not None


def _squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


def commands_of(page: Path) -> list[Command]:
    """In the order of the page."""
    found: list[Command] = []
    for block in _BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, answer = part.partition("\n")
            found.append(Command(line, answer))
    return found


def walk(commands: Sequence[Command], directory: Path, limit_s: float, **environment: str) -> None:
    """:raises AssertionError: a command failed, or answered something else than the page says"""
    script = "".join(f"{command.line}\necho '{_END}'$?\n" for command in commands)
    own = {name: value for name, value in os.environ.items() if name not in _NOT_OF_A_READER}
    said = in_shell(script, directory, {**own, **environment, "NO_COLOR": "1"}, limit_s=limit_s, together=True).out
    answers = said.split(_END)
    for command, answer, after in zip(commands, answers, answers[1:], strict=False):
        status, _, _ = after.partition("\n")
        output = answer.partition("\n")[2] if command is not commands[0] else answer
        assert status == "0", f"$ {command.line}\n{output}\nstatus {status}"
        assert command.is_answered_by(output), f"$ {command.line}\nthe page says:\n{command.answer}\nit was:\n{output}"
    assert len(answers) == len(commands) + 1, said[-2000:]
