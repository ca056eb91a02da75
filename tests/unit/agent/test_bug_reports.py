# SPDX-License-Identifier: Apache-2.0
"""What the driver's own script collects is kept for people, bounded, and read by nobody. Stand-ins for it and for
``systemd-run``."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from orchestrator.agent.bug_reports import KEPT, BugReports
from orchestrator.agent.paths import Paths
from orchestrator.core.actions.bug_reports import CollectBugReport
from orchestrator.core.errors import Fatal, InvalidInput, NotFound

WRITES = 'for word in "$@"; do last=$word; done; echo report >$last.gz; echo "$@" >>$0.asked'
RUNS = 'while [ "${1#--}" != "$1" ]; do echo "$1" >>$0.asked; shift; done; exec "$@"'


@pytest.fixture
def reports(tmp_path: Path) -> BugReports:
    paths = Paths(root=tmp_path, storage=tmp_path / "storage")
    paths.storage.mkdir()
    program(tmp_path, "systemd-run", RUNS)
    program(tmp_path, "nvidia-bug-report.sh", WRITES)
    return BugReports(paths)


def program(root: Path, name: str, line: str) -> Path:
    file = root / "usr/bin" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)
    return file


def collected(reports: BugReports) -> str:
    return reports.collect(CollectBugReport(report=str(uuid.uuid4()))).message


def test_a_report_is_roots_alone_and_made_once_in_safe_mode_with_bounds(reports: BugReports, tmp_path: Path) -> None:
    action = CollectBugReport(report=str(uuid.uuid4()))
    first, second = reports.collect(action), reports.collect(action)
    file = Path(first.message)
    assert (first.changed, second.changed, second.message) == (True, False, first.message)
    assert (file.name, file.read_text()) == (f"{action.report}.log.gz", "report\n")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (tmp_path / "usr/bin/nvidia-bug-report.sh.asked").read_text().startswith("--safe-mode --output-file ")
    bounds = (tmp_path / "usr/bin/systemd-run.asked").read_text()
    assert all(word in bounds for word in ("RuntimeMaxSec=120", "LimitFSIZE=64M", "UMask=0077", "--wait"))


def test_the_oldest_go(reports: BugReports) -> None:
    for age in range(KEPT + 3):
        os.utime(collected(reports), (1e9 + age, 1e9 + age))
    newest = collected(reports)
    kept = list(reports.paths.reports.iterdir())
    assert (len(kept), Path(newest) in kept) == (KEPT, True)


def test_a_host_without_the_script_says_so(reports: BugReports, tmp_path: Path) -> None:
    (tmp_path / "usr/bin/nvidia-bug-report.sh").unlink()
    with pytest.raises(NotFound, match=r"no nvidia-bug-report\.sh"):
        collected(reports)
    assert not reports.paths.reports.exists()


@pytest.mark.parametrize("line", ["echo it hangs; exit 1", "exit 0"])
def test_a_script_that_fails_or_writes_nothing_leaves_none(reports: BugReports, tmp_path: Path, line: str) -> None:
    program(tmp_path, "nvidia-bug-report.sh", line)
    with pytest.raises(Fatal) as failed:
        collected(reports)
    assert failed.value.code == "host.bug_report_failed"
    assert list(reports.paths.reports.iterdir()) == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "x" * 300])
def test_a_name_that_is_no_id_is_refused(reports: BugReports, name: str) -> None:
    with pytest.raises(InvalidInput):
        reports.collect(CollectBugReport(report=name))
