# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.control_plane``: runs all suites and writes build/bench/control_plane.json."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.control_plane import claims, memory, operations, ssh, take_over
from tests.bench.placement.rows import table, write

REPORT = Path("build/bench/control_plane.json")


def main() -> None:
    rows = [*claims.suite(), *operations.suite(), *take_over.suite(), *ssh.suite(), *memory.suite()]
    write(rows, REPORT)
    sys.stdout.write(f"{table(rows)}\n")


if __name__ == "__main__":
    main()
