# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.soak.__main__ import page

REPORT = """<testsuites><testsuite timestamp="2026-01-02T03:04:05.6">
<testcase classname="tests.operations.test_a" name="one" time="60">
<properties><property name="kills of the server" value="25"/></properties></testcase>
<testcase classname="tests.operations.test_a" name="two" time="30"><failure message="no"/>
<properties><property name="kills of the server" value="25"/></properties></testcase>
<testcase classname="tests.lab.test_b" name="three" time="0"><skipped message="no lab"/></testcase>
</testsuite></testsuites>"""


def test_the_page_has_what_was_run_and_nothing_else() -> None:
    written = page(REPORT, "...\nfault matrix on postgresql: 12 runs of an operation, each with its own fault\n")
    rows = [line for line in written.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `tests/lab/test_b.py` | 0 | 0 | 1 | 0.0 |",
        "| `tests/operations/test_a.py` | 2 | 1 | 0 | 1.5 |",
    ]
    assert "Begun 2026-01-02 03:04." in written
    assert "Kills of the server: 25." in written
    assert "Fault matrix on postgresql: 12 runs" in written
