# SPDX-License-Identifier: Apache-2.0
"""What commands print, compared with files that somebody has read."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from orchestrator.cli.main import run
from tests.fakes.golden import GOLDEN, check_golden

WIDTHS = ("60", "200", None)


def check(name: str, text: str) -> None:
    check_golden(GOLDEN / "cli" / f"{name}.txt", text)


def check_view(words: str, width: str | None, text: str, never_cut: tuple[str, ...]) -> None:
    """As wide as the terminal at the most, but for commands that begin with ``never_cut``."""
    if width is not None:
        assert max(len(line) for line in text.splitlines()[1:]) <= int(width) or words.startswith(never_cut)
    check(file_name(words, width), text)


def told_by(words: str) -> str:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words.split())
    return f"$ vgpuctl {words}\n[exit {code}]\n[out]\n{out.getvalue()}[err]\n{err.getvalue()}"


def file_name(words: str, width: str | None) -> str:
    kept = "".join(c if c.isalnum() else "-" for c in words)
    return f"{kept}.{width or 'pipe'}"
