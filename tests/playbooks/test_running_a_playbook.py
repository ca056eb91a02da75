# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.outcome import error_of
from orchestrator.core.errors import Fatal, Unknown
from tests.playbooks.local_runs import run_local


def test_a_good_run_reports_each_task_as_it_starts(tmp_path: Path) -> None:
    titles: list[str] = []
    report = run_local("outcomes.yml", tmp_path / "s", {"gpu-1": {"ending": "success"}}, titles.append)
    assert error_of(report, "gpu-1") is None
    assert titles[:2] == ["Say hello", "Fail when asked to"]


def test_a_failed_task_is_named_with_what_it_wrote(tmp_path: Path) -> None:
    error = error_of(run_local("outcomes.yml", tmp_path / "s", {"gpu-1": {"ending": "failure"}}), "gpu-1")
    assert isinstance(error, Fatal)
    assert "Fail when asked to" in error.message
    assert error.details is not None
    assert "because" in error.details


def test_a_failure_that_the_playbook_mends_is_none(tmp_path: Path) -> None:
    report = run_local("outcomes.yml", tmp_path / "s", {"gpu-1": {"ending": "rescued"}})
    assert error_of(report, "gpu-1") is None


def test_variables_of_the_user_do_not_reach_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_FILTER_PLUGINS", str(tmp_path))
    report = run_local("outcomes.yml", tmp_path / "s", {"gpu-1": {"ending": "success"}})
    assert error_of(report, "gpu-1") is None


@pytest.mark.fault("F112")
def test_a_host_that_the_play_did_not_touch_is_not_done(tmp_path: Path) -> None:
    report = run_local("outcomes.yml", tmp_path / "s", {"gpu-1": {"ending": "success"}})
    assert isinstance(error_of(report, "gpu-2"), Unknown)


def test_a_playbook_that_is_not_there_fails_with_ansibles_words(tmp_path: Path) -> None:
    error = error_of(run_local("no_such_play.yml", tmp_path / "s", {"gpu-1": {}}), "gpu-1")
    assert isinstance(error, Fatal)
    assert error.details is not None
    assert "no_such_play.yml" in error.details


def test_a_play_that_hangs_is_ended_with_everything_it_started_when_the_server_leaves(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    hosts: dict[str, dict[str, object]] = {"gpu-1": {"pid_file": str(pid_file)}}
    report = run_local("endless.yml", tmp_path / "s", hosts, leaving=lambda: pid_file.exists() and _pid(pid_file) > 0)
    assert report.status == "canceled"
    assert isinstance(error_of(report, "gpu-1"), Unknown)
    assert _is_gone(_pid(pid_file))


def test_a_play_that_tells_nothing_for_too_long_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    hosts: dict[str, dict[str, object]] = {"gpu-1": {"pid_file": str(tmp_path / "pid")}}
    assert run_local("endless.yml", tmp_path / "s", hosts, silent_s=5).status == "timeout"
    assert time.monotonic() - began < 100, "long before it has had its time"


def _is_gone(pid: int) -> bool:
    """Nobody may have waited for it yet: a zombie is as good as none."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def _pid(file: Path) -> int:
    return int(file.read_text() or 0)
