# SPDX-License-Identifier: Apache-2.0
"""Texts that are compared with files which somebody has read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parents[1] / "golden"
WRITE: Final = "VGPUCTL_WRITE_GOLDEN"
"""Set it to write the files anew, then read the difference."""


def check_golden(path: Path, text: str) -> None:
    if os.environ.get(WRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing; {WRITE}=1 writes it"
    assert text == path.read_text(encoding="utf-8")
