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


LOG = "...\nfault matrix on postgresql: 12 runs of an operation, each with its own fault\n"


def test_the_page_has_what_was_run_and_what_was_counted() -> None:
    rows = [line for line in page(REPORT, LOG, "").splitlines() if line.endswith(" 03:04 |")]
    assert rows == [
        "| `tests/lab/test_b.py` | 0 | 0 | 1 | 0.0 | 2026-01-02 03:04 |",
        "| `tests/operations/test_a.py` | 2 | 1 | 0 | 1.5 | 2026-01-02 03:04 |",
        "| Kills of the server | 25 | 2026-01-02 03:04 |",
        "| Runs of an operation on postgresql, each with its own fault | 12 | 2026-01-02 03:04 |",
    ]


def test_what_a_run_left_out_stays_as_it_was_counted_last() -> None:
    first = page(REPORT, LOG, "")
    again = REPORT.replace("2026-01-02", "2026-01-05").replace("test_a", "test_c").replace("25", "7")
    second = page(again, "", first).splitlines()
    assert "| `tests/operations/test_a.py` | 2 | 1 | 0 | 1.5 | 2026-01-02 03:04 |" in second
    assert "| `tests/operations/test_c.py` | 2 | 1 | 0 | 1.5 | 2026-01-05 03:04 |" in second
    assert [line for line in second if line.startswith("| Kills")] == ["| Kills of the server | 7 | 2026-01-05 03:04 |"]
    assert len([line for line in second if "test_b" in line]) == 1
