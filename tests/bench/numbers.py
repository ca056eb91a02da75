# SPDX-License-Identifier: Apache-2.0
"""What the last runs of the benchmarks have measured, as a page: ``python -m tests.bench.numbers``."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from tests.bench.placement.rows import read

PAGE = Path("docs/reference/numbers.md")
BY_HAND = "## Notes"
"""What follows this heading is kept when the page is written again."""
REPORTS = tuple(
    Path("build/bench") / f"{name}.json"
    for name in (
        "create_vm",
        "discovery",
        "control_plane",
        "server_path",
        "api",
        "web",
        "upgrade",
        "moves",
        "readings",
        "networks",
        "health",
        "power",
    )
)


def _tables() -> Iterator[str]:
    for report in REPORTS:
        if not report.exists():
            continue
        day = datetime.datetime.fromtimestamp(report.stat().st_mtime, datetime.UTC).date()
        yield f"\n## {report.stem}\n\nMeasured {day}.\n"
        yield "| suite | case | policy | metric | value |\n|---|---|---|---|---:|"
        for row in read(report):
            yield f"| {row.suite} | {row.case or '-'} | {row.policy or '-'} | {row.metric} | {row.value:.6g} |"


def page(by_hand: str) -> str:
    """The page with what people have written below its tables."""
    head = (
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Benchmarks: what was measured\n\n"
        "Written by `python -m tests.bench.numbers` from `build/bench/*.json`, which `make bench` writes;\n"
        f"placement has [its own page](placement-numbers.md). The machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()},\nshared with others; lab hosts are emulated "
        "(no KVM), so their seconds say something only beside each other.\n"
    )
    return "\n".join([head.rstrip("\n"), *_tables(), "", by_hand])


def main() -> None:
    old = PAGE.read_text() if PAGE.exists() else ""
    PAGE.write_text(page(BY_HAND + old.partition(BY_HAND)[2] if BY_HAND in old else f"{BY_HAND}\n"))


if __name__ == "__main__":
    main()
