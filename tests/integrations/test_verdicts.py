# SPDX-License-Identifier: Apache-2.0
"""How a report of the suite becomes a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.page import PAGE, page
from tests.integrations.verdicts import Verdict, verdicts


def _suite(**checks: dict[str, Any]) -> dict[str, Any]:
    known = {name: {"test_id": "T-1", "labels": [], "step": "look", **check} for name, check in checks.items()}
    return {"tests": {"validations": {"group": {"checks": known}}}}


def _verdicts(directory: Path, suite: dict[str, Any], *cases: str, told: dict[str, Any] | None = None) -> list[Verdict]:
    (directory / "network.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    if told is not None:
        (directory / "network.look.json").write_text(json.dumps(told))
    return verdicts(suite, directory / "network.xml", directory)


def test_the_reason_of_a_failure_is_the_steps_own_and_else_the_suites(tmp_path: Path) -> None:
    case = (
        '<testcase name="Seen"><failure message="AssertionError: Validation failed: too few&#10;Output:"/></testcase>'
    )
    (failed,) = _verdicts(tmp_path, _suite(Seen={}), case, told={"success": False, "error": "there is none"})
    assert (failed.outcome, failed.why) == ("failed", "there is none")
    (failed,) = _verdicts(tmp_path, _suite(Seen={}), case, told={"success": True})
    assert (failed.outcome, failed.why) == ("failed", "too few")


def test_a_check_whose_step_was_not_done_is_not_passed_and_needs_a_reason(tmp_path: Path) -> None:
    skipped = '<testcase name="{}"><skipped message="step is not configured"/></testcase>'
    (found,) = _verdicts(tmp_path, _suite(BmcLogs={}), skipped.format("BmcLogs"))
    assert found.outcome == "not applicable"
    assert "baseboard" in found.why
    (found,) = _verdicts(tmp_path, _suite(BmcLogs={}), '<testcase name="BmcLogs"/>')
    assert found.outcome == "not applicable"
    with pytest.raises(LookupError, match="Unknown: step is not configured"):
        _verdicts(tmp_path, _suite(Unknown={}), skipped.format("Unknown"))
    with pytest.raises(LookupError, match="Unknown: not in the report"):
        _verdicts(tmp_path, _suite(Unknown={}))


def test_checks_of_clusters_count_nowhere_and_parts_of_a_check_not_beside_it(tmp_path: Path) -> None:
    suite = _suite(Seen={}, OfClusters={"requires": ["kubernetes"]})
    cases = ('<testcase name="Seen"/>', '<testcase name="Seen::Part"><failure message="x"/></testcase>')
    assert [found.outcome for found in _verdicts(tmp_path, suite, *cases, told={"success": True})] == ["passed"]


def test_the_page_has_the_score_and_whatever_did_not_pass(tmp_path: Path) -> None:
    suite = _suite(Seen={}, Lost={})
    cases = ('<testcase name="Seen"/>', '<testcase name="Lost"><failure message="x"/></testcase>')
    found = _verdicts(tmp_path, suite, *cases, told={"success": False, "error": "a | b"})
    written = page(PAGE, "0.1", "a site", {"network": found})
    assert "| network | 1 | 1 | 0 |" in written
    assert "| all | 1 | 1 | 0 |" in written
    assert "| Lost | T-1 | failed | a \\| b |" in written
    assert "| Seen |" not in written
