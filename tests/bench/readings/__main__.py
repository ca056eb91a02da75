# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.bench.readings [--part P …]``: writes build/bench/readings.json."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.placement.rows import Row, keep, read, rows_of, table
from tests.bench.readings.agent import GPUS, VGPUS, sampling
from tests.bench.readings.server import in_process, over_http

REPORT: Final = Path("build/bench/readings.json")
SUITE: Final = "readings"
PARTS: Final = ("http", "process", "agent")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.readings")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--hosts", type=int, default=1000, help="of the part http")
    wanted = parser.parse_args()
    for part in wanted.part:
        keep(_rows(part, wanted.hosts), REPORT)
    sys.stdout.write(f"{table(read(REPORT))}\n")


def _rows(part: str, hosts: int) -> Iterator[Row]:
    if part == "http":
        with tempfile.TemporaryDirectory() as directory:
            yield from rows_of(SUITE, f"http hosts={hosts}", "sqlite", over_http(Path(directory), hosts))
    elif part == "agent":
        yield from rows_of(SUITE, f"{GPUS} GPUs, {GPUS * VGPUS} vGPUs", "agent", sampling())
    else:
        yield from rows_of(SUITE, "process hosts=10000", "memory", in_process(10_000))


if __name__ == "__main__":
    main()
