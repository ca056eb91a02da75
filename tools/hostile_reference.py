# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.hostile_reference`` writes docs/reference/hostile.md: how many attacks each family of
tests/hostile/families generates, and what comes out of them."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.families.all import FAMILIES
from tools.tree import ROOT

PAGE = Path("docs/reference/hostile.md")
_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# Attacks that are generated, and what comes out of them

Written by `make docs` from `tests/hostile/families`. `make test` runs a sample of each family, `make soak` all of them,
and [soak.md](soak.md) says how many ran last (`make soak SOAK_TESTS=tests/hostile` runs these alone).
In every case nothing changes beyond what the attacked thing's owner could have changed. The requests of a stolen key
are generated too (`tests/hostile/test_stolen_key.py`); attacks that were written one by one are the other tests of
`tests/hostile`.

| family | cases | outcome |
|---|---|---|
"""


def page() -> str:
    """The whole page, with one row for each family."""
    rows = [f"| {family.name} | {len(family.cases):,} | {family.outcome} |" for family in FAMILIES]
    total = sum(len(family.cases) for family in FAMILIES)
    return _HEAD + "\n".join([*rows, f"| together | {total:,} | |", ""])


if __name__ == "__main__":
    (ROOT / PAGE).write_text(page(), encoding="utf-8")
