# SPDX-License-Identifier: Apache-2.0
"""What commands print, compared with files that somebody has read."""

from __future__ import annotations

import os
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from orchestrator.cli.main import run

GOLDEN = Path(__file__).parents[2] / "golden" / "cli"
WRITE = "VGPUCTL_WRITE_GOLDEN"
"""Set it to write the files anew, then read the difference."""
WIDTHS = ("60", "200", None)


def check(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get(WRITE):
        path.write_text(text)
    assert path.exists(), f"{path} is missing; {WRITE}=1 writes it"
    assert text == path.read_text()


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
