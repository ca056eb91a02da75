# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli import progress
from orchestrator.cli.commands.operation import full_id
from orchestrator.cli.live import LiveSteps
from orchestrator.cli.progress import PlainLines, follow
from orchestrator.cli.session import CliSession
from orchestrator.client.failures import failure_of
from orchestrator.core.errors import Bug, Fatal, NotFound, Stuck, Unknown, error_to_dict


def step_of(title: str, state: str, message: str = "") -> dict[str, Any]:
    started = None if state == "pending" else "2026-11-21T00:00:00Z"
    finished = "2026-11-21T00:00:01.500000Z" if state in {"done", "failed", "undone"} else None
    return {
        "name": f"{title}.1", "title": title, "state": state, "message": message,
        "started_at": started, "finished_at": finished,
    }  # fmt: skip


def operation_of(state: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "op", "state": state, "steps": list(steps), "warnings": [], "error": None, "remainder": [],
        "revision": len(steps), **more,
    }  # fmt: skip


class _Client:
    """Answers with what it was given; an exception is raised."""

    def __init__(self, *answers: dict[str, Any] | BaseException) -> None:
        self._answers = list(answers)

    def operation(self, operation_id: str, *, wait_s: float, since: int | None) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class _Session(CliSession):
    def __init__(self, client: _Client) -> None:
        super().__init__()
        self.__dict__["client"] = client
        self.reconnected = 0

    def reconnect(self) -> Any:
        self.reconnected += 1
        return self.client


def test_each_step_is_said_once_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines()
    lines.update(operation_of("running", step_of("disk", "done"), step_of("start", "running")))
    lines.update(operation_of("running", step_of("disk", "done"), step_of("start", "failed", "EIO")))
    lines.update(operation_of("undoing", step_of("disk", "undone"), step_of("start", "failed", "EIO")))
    assert capsys.readouterr().err.splitlines() == [
        "✓ disk: done (1.5 s)",
        "✗ start: failed (1.5 s): EIO",
        "↩ disk: taken back (1.5 s)",
    ]


def test_the_live_view_draws_every_state_of_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    states = ("pending", "running", "done", "failed", "undoing", "undone", "undo_failed")
    with LiveSteps() as live:
        live.update(operation_of("undoing", *(step_of(state, state) for state in states)))
    drawn = capsys.readouterr().err
    assert [state for state in states if state not in drawn] == []


def test_a_lost_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "RECONNECT_PAUSE_S", 0)
    lost = Unknown("server.lost", "gone")
    session = _Session(_Client(lost, lost, operation_of("done")))
    assert follow(session, "op")["state"] == "done"
    assert session.reconnected == 2


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "RECONNECT_PAUSE_S", 0)
    with pytest.raises(Unknown) as caught:
        follow(_Session(_Client(*[Unknown("server.lost", "gone")] * 10)), "op")
    assert caught.value.hint == "the operation goes on; 'vgpuctl operation wait op' waits for it"


def test_an_interrupt_says_how_to_go_on_watching(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        follow(_Session(_Client(KeyboardInterrupt())), "op")
    assert "vgpuctl operation wait op" in capsys.readouterr().err


def test_warnings_are_said_and_the_operation_counts_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    follow(_Session(_Client(operation_of("done", warnings=["no address seen"]))), "op")
    assert "warning: no address seen" in capsys.readouterr().err


def test_a_failure_names_step_cause_and_way_out() -> None:
    stored = error_to_dict(Fatal("gpu.create_failed", "EIO on the GPU"))
    found = failure_of(operation_of("undone", step_of("disk", "undone"), step_of("vGPU", "failed"), error=stored))
    assert isinstance(found, Fatal)
    assert (found.message, found.code) == ("vGPU: EIO on the GPU", "gpu.create_failed")
    assert "taken back" in str(found.hint)


def test_a_stuck_operation_names_what_remains_and_two_ways_out() -> None:
    stored = error_to_dict(Fatal("gpu.create_failed", "EIO"))
    found = failure_of(operation_of("stuck", step_of("vGPU", "undo_failed"), error=stored, remainder=["mdev on gpu1"]))
    assert isinstance(found, Stuck)
    assert "mdev on gpu1" in found.message
    assert "operation retry op" in str(found.hint)
    assert "operation abandon op" in str(found.hint)


def test_an_operation_that_only_misses_its_host_is_said_to_go_on_by_itself() -> None:
    stored = {**error_to_dict(Fatal("vm.start_failed", "it did not start")), "stuck_by": "agent.not_running"}
    found = failure_of(operation_of("stuck", step_of("start", "undo_failed"), error=stored, remainder=["vGPU"]))
    assert "by itself when the host is back" in str(found.hint)


def test_a_failure_without_a_reason_is_a_bug() -> None:
    assert isinstance(failure_of(operation_of("undone")), Bug)


def test_an_operation_goes_by_its_id_in_capital_letters_whole_or_cut() -> None:
    whole = "6b5b7d09-c5af-4732-9d0c-d7169d86674d"

    class Listed:
        def operations(self, *, limit: int, beginning: str) -> list[dict[str, Any]]:
            return [{"id": whole}][:limit] if whole.startswith(beginning) else []

    session: Any = SimpleNamespace(client=Listed())
    assert [full_id(session, text) for text in (whole, whole.upper(), "6B5B7D", "6b5")] == [whole] * 4
    with pytest.raises(NotFound):
        full_id(session, "6B5B8")
