# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.cli import watch
from orchestrator.cli.session import CliSession, Format
from orchestrator.cli.table import Listing, age, field
from orchestrator.cli.tree import build
from orchestrator.cli.watch import ReadView, View, list_view, show_view
from orchestrator.core.errors import Fatal, Unknown

INTERRUPTED = 130
COLUMNS = (field("NAME", "name"), field("STATE", "state"))
Row = dict[str, str]
LISTING = Listing(columns=COLUMNS, none="nothing yet", output=Format.TABLE, sort=None)
STORY: list[list[Row]] = [
    [],
    [{"name": "train", "state": "creating"}],
    [{"name": "train", "state": "creating"}],
    [{"name": "train", "state": "running"}, {"name": "a-much-longer-name", "state": "creating"}],
    [{"name": "a-much-longer-name", "state": "running"}],
]


EVENT = {"noun": "vm", "name": "train", "change": "state", "subject": "7", "host": None}


class Watching(CliSession):
    """At a server that tells of these events, and then of nothing more."""

    def __init__(self, *events: Mapping[str, object] | Exception, **calls: object) -> None:
        super().__init__()
        self._events = events
        self.__dict__["client"] = SimpleNamespace(events=self._tell, **calls)

    def sibling(self) -> CliSession:
        return self

    def _tell(self, *, link: Callable[[bool], None], **_: object) -> Iterator[Mapping[str, object]]:
        link(True)
        for event in self._events:
            if isinstance(event, Exception):
                raise event
            yield event
        threading.Event().wait()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for between two readings."""
    monkeypatch.setattr(watch, "BETWEEN_S", 0.0)
    monkeypatch.setattr(watch, "TICK_S", 0.01)
    monkeypatch.setattr(watch._News, "forget", lambda _: None)


def told(story: list[list[Row]]) -> ReadView:
    steps: Iterator[int] = count()

    def read_view() -> View:
        at = next(steps)
        if at == len(story):
            raise KeyboardInterrupt
        return list_view(story[at], LISTING, lambda row: str(row["name"]))

    return read_view


def test_without_a_terminal_what_changed_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        show_view(Watching(*[EVENT] * len(STORY)), told(STORY), watch=True, nouns=("vm",))
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "nothing yet",
        "NAME STATE",
        "train creating",
        "train running",
        "a-much-longer-name creating",
        "a-much-longer-name running",
        "gone: train",
    ]


def test_what_grows_old_is_no_change(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("orchestrator.cli.ages.now", lambda: now)
    rows = [{"name": "a", "created_at": "1970-01-01T00:00:00+00:00"}]
    listing = Listing(columns=(field("NAME", "name"), age()), none="", output=Format.TABLE, sort=None)
    views = iter([rows, rows, [*rows, {"name": "b", "created_at": "1970-01-01T01:00:00+00:00"}]])

    def read_view() -> View:
        nonlocal now
        now += 7200
        shown = next(views, None)
        if shown is None:
            raise KeyboardInterrupt
        return list_view(shown, listing, lambda row: str(row["name"]))

    with pytest.raises(KeyboardInterrupt):
        show_view(Watching(*[EVENT] * 3), read_view, watch=True, nouns=("vm",))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "a", "b"]


@pytest.mark.parametrize(
    "event",
    [
        {**EVENT, "noun": "host"},
        {**EVENT, "name": "other", "subject": "8"},
        {**EVENT, "change": "step", "noun": "operation"},
    ],
    ids=["noun", "name", "step"],
)
def test_what_happens_to_other_things_is_not_asked_about(event: Mapping[str, object]) -> None:
    reads = count()

    def read_view() -> View:
        return View(data=next(reads), lines=list, final=next(reads) > 1, about=frozenset({"train", "7"}))

    with pytest.raises(Fatal):
        show_view(Watching(event, event, Fatal("x.y", "end")), read_view, watch=True, nouns=("vm", "operation"))
    assert next(reads) == 2, "it was read once"


def _operation(number: int) -> dict[str, object]:
    day = f"2026-11-20T10:00:0{number}Z"
    return {"id": f"op{number}", "kind": "start_vm", "subject": "x", "state": "running", "created_at": day}


def test_an_operation_that_newer_ones_pushed_out_of_the_list_is_not_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = iter([[2, 1], [3, 2], [4, 2], [4]])

    def operations(*, active: bool, limit: int, **only: str | None) -> list[dict[str, object]]:
        assert (active, limit, {*only.values()}) == (True, 2, {None})
        numbers = next(story, None)
        if numbers is None:
            raise KeyboardInterrupt
        return [_operation(number) for number in numbers]

    event = {**EVENT, "noun": "operation"}
    session = Watching(*[event] * 4, operations=operations)
    command = ["operation", "list", "--active", "--watch", "--limit=2"]
    assert build().main(args=command, standalone_mode=False, obj=session) == INTERRUPTED
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if line.startswith("gone")] == ["gone: op3", "gone: op2"]


@pytest.mark.parametrize("output", [Format.JSON, Format.YAML])
def test_programs_get_a_document_for_each_change(capsys: pytest.CaptureFixture[str], output: Format) -> None:
    session = Watching(*[EVENT] * len(STORY))
    session.format = output
    with pytest.raises(KeyboardInterrupt):
        show_view(session, told(STORY), watch=True, nouns=("vm",))
    out = capsys.readouterr().out
    if output is Format.JSON:
        assert [json.loads(line) for line in out.splitlines()] == [*STORY[:2], *STORY[3:]]
    else:
        assert out.count("---\n") == len(STORY) - 1


def test_what_is_final_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    views = iter([View(data=1, lines=lambda: ["goes on"]), View(data=2, lines=lambda: ["is done"], final=True)])
    show_view(Watching(EVENT), lambda: next(views), watch=True, nouns=("vm",))
    assert capsys.readouterr().out == "goes on\nis done\n"


@pytest.mark.parametrize(("error", "goes_on"), [(Unknown("server.lost", "gone"), True), (Fatal("vm.x", "no"), False)])
def test_a_server_that_goes_away_is_asked_again_and_other_errors_end_it(
    error: Exception, goes_on: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[View | Exception] = [
        View(data=1, lines=lambda: ["first"]), error, View(data=2, lines=lambda: ["last"], final=True),
    ]  # fmt: skip

    def read_view() -> View:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    if goes_on:
        show_view(Watching(EVENT, EVENT), read_view, watch=True, nouns=("vm",))
    else:
        with pytest.raises(Fatal):
            show_view(Watching(EVENT, EVENT), read_view, watch=True, nouns=("vm",))
    assert capsys.readouterr().out == ("first\nlast\n" if goes_on else "first\n")


WATCHED = ("list-vms", "host list", "gpu list", "gpu map", "operation list")


@pytest.mark.parametrize("words", WATCHED)
def test_an_interrupt_ends_a_watch_like_any_command_and_says_nothing(state: Path, words: str) -> None:
    as_from_a_terminal = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = as_from_a_terminal + "from orchestrator.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, *words.split(), "--watch"],
        env={"VGPUCTL_STATE": str(state), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    assert re.search("Traceback", err) is None
