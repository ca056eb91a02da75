# SPDX-License-Identifier: Apache-2.0
"""What commands print, compared with files that somebody has read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from orchestrator.cli.main import run
from tests.fakes.golden import GOLDEN, check_golden

NARROW, WIDE = 60, 200
"""Columns of a terminal: everything is to fit the first, and the second is more than anybody needs."""


def check(name: str, text: str) -> None:
    check_golden(GOLDEN / "cli" / f"{name}.txt", text)


def check_view(words: str, text: Callable[[], str], never_cut: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """As it is piped; on a terminal it is no wider than that, but for commands that begin with ``never_cut``."""
    check(file_name(words), text())
    for width in () if words.startswith(never_cut) else (NARROW, WIDE):
        patch.setenv("COLUMNS", str(width))
        assert max(len(line) for line in text().splitlines()[1:]) <= width


def told_by(words: str) -> str:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words.split())
    return f"$ vgpuctl {words}\n[exit {code}]\n[out]\n{out.getvalue()}[err]\n{err.getvalue()}"


def file_name(words: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in words)
