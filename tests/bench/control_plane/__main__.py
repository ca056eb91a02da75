# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.control_plane``: runs all suites and writes build/bench/control_plane.json."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.control_plane import claims, memory, operations, served, ssh, take_over
from tests.bench.placement.rows import Row, table, write

REPORT = Path("build/bench/control_plane.json")


def main() -> None:
    rows: list[Row] = []
    for suite in (claims, served, operations, take_over, ssh, memory):
        rows += suite.suite()
        write(rows, REPORT)  # what was measured stays, should a later suite fail
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
