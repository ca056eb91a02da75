# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.output import LONG_LIST, colour, guest_lines, printable, render_details, show, shown, width
from orchestrator.cli.session import Format


@given(st.text())
def test_what_is_printed_cannot_move_the_cursor(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        (0, "0"),
        (True, "yes"),
        (False, "no"),
        (["a", "b"], "a, b"),
        ("\x1b[m", "\\x1b[m"),
    ],
)
def test_every_value_has_one_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_details_stand_under_each_other() -> None:
    assert render_details([("a", "1"), ("long", "2")]) == ["a     1", "long  2"]


@pytest.mark.parametrize(
    ("variables", "is_terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    variables: dict[str, str], is_terminal: bool, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b" in colour("x", "red", stream_is_terminal=is_terminal)) == coloured


@pytest.mark.parametrize(
    ("columns", "expected"), [("60", 60), ("200", 200), ("0", 80), ("-1", None), ("x", None), ("", None)]
)
def test_the_width_is_that_of_the_terminal_and_none_in_a_pipe(
    columns: str, expected: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert width() == expected


def test_a_long_list_as_json_has_a_line_for_each_object(capsys: pytest.CaptureFixture[str]) -> None:
    data = [{"name": f"täst-{number}", "of": {"some": [number]}} for number in range(LONG_LIST + 1)]
    show(data, Format.JSON, list)
    text = capsys.readouterr().out
    assert json.loads(text) == data
    assert len(text.splitlines()) == len(data) + 2


def test_json_and_yaml_are_the_object_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"name": "täst", "list": [1, None, True], "when": "2026-11-21T00:00:00Z", "no": "no"}
    show(data, Format.JSON, list)
    assert json.loads(capsys.readouterr().out) == data
    show(data, Format.YAML, list)
    assert yaml.safe_load(capsys.readouterr().out) == data
    show(data, Format.TABLE, lambda: ["a", "b"])
    assert capsys.readouterr().out == "a\nb\n"


def test_what_a_guest_printed_is_lines_whatever_bytes_it_has() -> None:
    printed = b"\x1b(B\x1b[2J\x1b[1;1Ha\tb\r\n\xff\x1b]0;title\x07\n"
    assert guest_lines(printed) == ["a       b", "\ufffd\\x1b]0;title\\x07"]
