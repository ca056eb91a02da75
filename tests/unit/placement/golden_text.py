# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from tests.fakes.golden import GOLDEN as ALL
from tests.fakes.golden import check_golden

GOLDEN = ALL / "explain"


def assert_golden(name: str, text: str, *, folder: Path = GOLDEN) -> None:
    check_golden(folder / f"{name}.txt", text)
