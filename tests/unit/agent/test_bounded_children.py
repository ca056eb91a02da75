# SPDX-License-Identifier: Apache-2.0
"""Programs that need not be believed: what they print is bounded, and so is how long they may take."""

from __future__ import annotations

import sys

import pytest

from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, Finished, run

PYTHON = (sys.executable, "-c")


def test_all_that_a_bounded_program_prints_is_kept() -> None:
    assert run([*PYTHON, "print('x' * 20000); raise SystemExit(7)"], limit_s=60, most_bytes=30_000) == Finished(
        7, "x" * 20_000 + "\n"
    )


def test_one_that_prints_more_is_ended() -> None:
    with pytest.raises(ChildTalksTooMuch, match="more than 1000 bytes"):
        run([*PYTHON, "while True: print('x' * 100)"], limit_s=60, most_bytes=1000)


@pytest.mark.parametrize(
    "code", ["import time; time.sleep(600)", "import os, time; os.close(1); os.close(2); time.sleep(600)"]
)
def test_one_that_does_not_end_is_ended(code: str) -> None:
    with pytest.raises(ChildHangs):
        run([*PYTHON, code], limit_s=0.5, most_bytes=1000)
