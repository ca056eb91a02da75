# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.soak XML LOG``: the counts of a run of `make soak` in docs/reference/soak.md. What that run
left out stays there as it was counted last."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "soak.md"
_COUNT = re.compile(r"^fault matrix on (?P<backend>\w+): (?P<runs>\d+) runs", re.MULTILINE)
_ROW = re.compile(r"^\| (?P<name>.+?) \|.+\| (?P<begun>[0-9-]{10} [0-9:]{5}) \|$", re.MULTILINE)
_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# What soaks have run

Written by `make soak` from its own report. `SOAK_TESTS` narrows what is run; the rest stays as it was when it last ran.

"""


@dataclass
class Counts:
    run: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def page(report: str, log: str, earlier: str) -> str:
    """``report``: pytest's JUnit XML; ``log``: what it printed, for the counts of the fault matrix; ``earlier``: the
    page as it is."""
    root = ET.fromstring(report)
    suite = root if root.tag == "testsuite" else root.find("testsuite")
    begun = "" if suite is None else suite.get("timestamp", "")[:16].replace("T", " ")
    rows = {found["name"]: found[0] for found in _ROW.finditer(earlier)}
    rows |= {name: f"| {name} | {cells} | {begun} |" for name, cells in _rows(root, log)}
    tests = [rows[name] for name in sorted(rows) if name.startswith("`")]
    counts = [rows[name] for name in sorted(rows) if not name.startswith("`")]
    lines = ["| tests | run | failed | skipped | minutes | begun |", "|---|---:|---:|---:|---:|---|", *tests]
    if counts:
        lines += ["", "| counted | times | begun |", "|---|---:|---|", *counts]
    return _HEAD + "\n".join(lines) + "\n"


def _rows(root: ET.Element, log: str) -> Iterator[tuple[str, str]]:
    for name, counts in _by_file(root).items():
        yield f"`{name}`", f"{counts.run} | {counts.failed} | {counts.skipped} | {counts.seconds / 60:.1f}"
    for told, count in _counted(root).items():
        yield f"{told[0].upper()}{told[1:]}", f"{count}"
    for found in _COUNT.finditer(log):
        yield f"Runs of an operation on {found['backend']}, each with its own fault", found["runs"]


def _counted(root: ET.Element) -> Counter[str]:
    """What the tests that passed have counted themselves (``record_property``)."""
    counted: Counter[str] = Counter()
    for case in root.iter("testcase"):
        if case.find("failure") is None and case.find("error") is None:
            for told in case.iter("property"):
                counted[told.get("name", "")] += int(told.get("value", "0"))
    return counted


def _by_file(root: ET.Element) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for case in root.iter("testcase"):
        counts = found.setdefault(case.get("classname", "").replace(".", "/") + ".py", Counts())
        counts.seconds += float(case.get("time", "0"))
        if case.find("skipped") is not None:
            counts.skipped += 1
            continue
        counts.run += 1
        counts.failed += case.find("failure") is not None or case.find("error") is not None
    return found


if __name__ == "__main__":
    report, log = (Path(name).read_text() for name in sys.argv[1:3])
    PAGE.write_text(page(report, log, PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} is written\n")
