# SPDX-License-Identifier: Apache-2.0
"""What of a terminal a person typed, and what it answered a guest by itself. They are those of xterm.js 6."""

from __future__ import annotations

import pytest

from orchestrator.core.vms.console_session import is_typed

ANSWERS = (
    b"\x1b[12;40R", b"\x1b[?12;40R", b"\x1b[?1;2c", b"\x1b[>0;276;0c", b"\x1b[0n", b"\x1b[?2004;2$y", b"\x1b[4;2$y",
    b"\x1b[8;24;80t", b"\x1b[I", b"\x1b[O", b"\x1bP1$r0m\x1b\\", b"\x1bP>|xterm.js(6.0.0)\x1b\\",
    b"\x1b]11;rgb:0000/0000/0000\x1b\\", b"\x1b]4;1;rgb:cd/00/00\x07", b"\x1b[?0u", b"\x1b[12;40R\x1b[?1;2c",
)  # fmt: skip
KEYS = (
    b"a", b"\r", b"\x1b", b"\x1b[A", b"\x1bOP", b"\x1bOR", b"\x1b[15~", b"\x1b[1;5C", b"\x1b[Z", b"\x1bc",
    b"\x1b[97;5u", b"\x1b[200~pasted\x1b[201~", b"\x1b[<0;3;4M", b"12;40R", b"\x1b[12;40Ra", "ö".encode(), b"\x00",
)  # fmt: skip


@pytest.mark.parametrize("data", [*ANSWERS, b""])
def test_what_a_terminal_answers_is_not_typed(data: bytes) -> None:
    assert not is_typed(data)


@pytest.mark.parametrize("data", KEYS)
def test_keys_and_pasted_text_are_typed(data: bytes) -> None:
    assert is_typed(data)


def test_a_long_message_is_judged_in_time() -> None:
    assert is_typed(b"\x1b[1;1R" * 100_000 + b"x")
    assert is_typed(b"\x1b]" + b"\x1bP" * 200_000)
    assert is_typed(b"\x1b[?" + b"1" * 500_000)
