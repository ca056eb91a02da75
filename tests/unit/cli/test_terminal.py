# SPDX-License-Identifier: Apache-2.0
"""The command line at work in a real terminal, as a person sees it. VGPUCTL_WRITE_GOLDEN=1 writes the screens anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.golden import GOLDEN, check_golden
from tests.fakes.running import running_server

VGPUCTL = f"{shlex.quote(sys.executable)} -m orchestrator.cli.main"
PATIENCE_S = 120
ENDS = re.compile(r"(\x1b\[(0|39|49)?m)+")
"""Versions of tmux differ in how they end a colour."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Terminal:
    """A tmux session with a shell that says nothing but what is run."""

    socket: Path

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), *words], check=True, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.stdout

    def begin(self, words: str) -> None:
        """On a clean screen; says at the end how it ended."""
        self.tmux("send-keys", "-t", "0", f"clear; {VGPUCTL} {words}; echo exit $? of '{words}'", "Enter")

    def run(self, words: str) -> str:
        """The screen when it has ended."""
        self.begin(words)
        return self.wait(lambda text: re.search(rf"^exit \d+ of {re.escape(words)}$", text, re.M) is not None)

    def screen(self) -> str:
        """With its colours, without the blank lines at the end."""
        shown = self.tmux("capture-pane", "-p", "-e", "-J", "-t", "0").rstrip("\n") + "\n"
        return ENDS.sub("\x1b[0m", shown)

    def wait(self, seen: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not seen(plain(screen := self.screen())):
            assert time.monotonic() < deadline, screen
            time.sleep(0.1)
        return screen


def plain(screen: str) -> str:
    return COLOUR.sub("", screen)


@contextmanager
def terminal(directory: Path, state: Path, columns: int, **environment: str) -> Iterator[Terminal]:
    opened = Terminal(directory / "tmux")
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "TMUX"}}
    variables = {**kept, "VGPUCTL_STATE": str(state), "PYTHONPATH": ":".join(sys.path), "LC_ALL": "C.UTF-8"}
    shell = "env PS1= bash --norc --noprofile"
    subprocess.run(
        ["tmux", "-S", str(opened.socket), "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", "40",
         f"stty -echo; exec {shell}"],
        check=True,
        env={**variables, **environment},
        timeout=PATIENCE_S,
    )  # fmt: skip
    try:
        yield opened
    finally:
        opened.tmux("kill-server")


def check(name: str, screen: str) -> None:
    """Ages apart: the server's clock stands still and the command's does not."""
    screen = re.sub(r"\b[0-9]+d\b", "(age)", screen)
    check_golden(GOLDEN / "terminal" / f"{name}.txt", screen)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    with running_server(tmp_path / "state") as state:
        yield state


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_session_looks_as_it_did(tmp_path: Path, served: Path, no_color: str) -> None:
    name = f"60{'-no-color' if no_color else ''}"
    with terminal(tmp_path, served, 60, NO_COLOR=no_color) as opened:
        created = opened.run("create-vm train --profile t4-small")
        assert ("\x1b[32m" in created) is (not no_color)
        check(f"create-vm.{name}", created)
        opened.begin("list-vms --watch")
        opened.wait(lambda text: "Ctrl-C ends" in text)
        subprocess.run(
            [*shlex.split(VGPUCTL), "create-vm", "later", "--profile", "t4-small"],
            env={**os.environ, "VGPUCTL_STATE": str(served), "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        watched = opened.wait(lambda text: "later" in text and "creating" not in text)
        assert plain(watched).count("NAME") == 1
        check(f"watch.{name}", watched)
        opened.tmux("send-keys", "-t", "0", "C-c")
        assert "exit 130 of list-vms --watch" in opened.wait(lambda text: "exit " in text)
        check(f"refused.{name}", opened.run("show-vm nobody"))
        piped = opened.run("gpu map | cat")
        assert "\x1b" not in piped
        check(f"piped.{name}", piped)
