# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.soak XML LOG``: the counts of a run of `make soak` as docs/reference/soak.md."""

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
_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# What the last soak has run

Written by `make soak` from its own report. `SOAK_TESTS` narrows what is run, and then only that is here.

"""


@dataclass
class Counts:
    run: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def page(report: str, log: str) -> str:
    """``report``: pytest's JUnit XML; ``log``: what it printed, for the counts of the fault matrix."""
    root = ET.fromstring(report)
    lines = list(_lines(root, log))
    return _HEAD + "\n".join(lines) + "\n"


def _lines(root: ET.Element, log: str) -> Iterator[str]:
    suite = root if root.tag == "testsuite" else root.find("testsuite")
    begun = "" if suite is None else suite.get("timestamp", "")[:16].replace("T", " ")
    yield f"Begun {begun}."
    yield ""
    yield "| tests | run | failed | skipped | minutes |"
    yield "|---|---:|---:|---:|---:|"
    for name, counts in sorted(_by_file(root).items()):
        minutes = counts.seconds / 60
        yield f"| `{name}` | {counts.run} | {counts.failed} | {counts.skipped} | {minutes:.1f} |"
    for name, count in sorted(_counted(root).items()):
        yield ""
        yield f"{name[0].upper()}{name[1:]}: {count}."
    for found in _COUNT.finditer(log):
        yield ""
        yield f"Fault matrix on {found['backend']}: {found['runs']} runs of an operation, each with its own fault."


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
    PAGE.write_text(page(Path(sys.argv[1]).read_text(), Path(sys.argv[2]).read_text()))
    sys.stdout.write(f"{PAGE.name} is written\n")
