# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "explain"


def assert_golden(name: str, text: str, *, folder: Path = GOLDEN) -> None:
    path = folder / f"{name}.txt"
    if os.environ.get("REGENERATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"wrote {path.name}: read the difference, then run again without REGENERATE_GOLDEN")
    assert path.is_file(), f"no golden file {path.name}; REGENERATE_GOLDEN=1 writes it"
    assert text == path.read_text(encoding="utf-8")
