# SPDX-License-Identifier: Apache-2.0
"""What is read of a serial console, which prints any bytes."""

from __future__ import annotations

import pytest

from orchestrator.core.vms.boot_check import MAX_LINE, seen_of


@pytest.mark.parametrize(
    ("log", "seen"),
    [
        (b"", (False, "")),
        (b"\x1b[2J\r\n \t\0\r\n", (False, "")),
        (b"GRUB loading\r\nKernel panic - not syncing\r\n\r\n", (False, "Kernel panic - not syncing")),
        (b"Debian 12 train ttyS0\r\n\r\ntrain login: ", (True, "train login:")),
        (b"\x1b[32mtrain login: \x1b[0m\r\n[   12.5] random: crng init done\r\n", (True, "train login:")),
        (b"last login: never by anybody\n", (False, "last login: never by anybody")),
        (b"\xff\xfea\x1b]0;title\x07\n", (False, "\ufffd\ufffda")),
        (b"x" * 1000, (False, "x" * MAX_LINE)),
    ],
)
def test_a_prompt_counts_wherever_it_stands_and_nothing_invisible_is_kept(log: bytes, seen: tuple[bool, str]) -> None:
    assert seen_of(log) == seen
