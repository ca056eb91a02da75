# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.control_plane [--part PART …] [--policy P …]``: writes build/bench/control_plane.json.

Parts that are not run keep the rows they have.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench.control_plane import claims, memory, operations, served, ssh, take_over
from tests.bench.placement.rows import Row, keep, read, table

REPORT: Final = Path("build/bench/control_plane.json")
POLICIES: Final = ("sqlite", "postgresql")
PARTS: Final[dict[str, Callable[[Sequence[str]], Iterator[Row]]]] = {
    "claims": claims.suite,
    "operations": served.suite,
    "waiting": operations.suite,
    "take_over": lambda _: take_over.suite(),
    "ssh": lambda _: ssh.suite(),
    "memory": lambda _: memory.suite(),
}
"""``operations`` are asked over HTTP; ``waiting``: what a thousand of them take that wait."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.control_plane")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=tuple(PARTS))
    parser.add_argument("--policy", choices=POLICIES, nargs="+", default=POLICIES)
    wanted = parser.parse_args()
    for part in wanted.part:
        keep(_said(PARTS[part](wanted.policy)), REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


def _said(rows: Iterator[Row]) -> Iterator[Row]:
    """With the load it was measured at; what was measured stays, should a later part fail."""
    for row in rows:
        print(
            f"{time.strftime('%X')} load {os.getloadavg()[0]:.1f} {row.case} {row.metric} {row.value:.4g}", flush=True
        )
        yield row


if __name__ == "__main__":
    main()
