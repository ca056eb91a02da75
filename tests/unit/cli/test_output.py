# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.output import (
    GAP,
    MIN_COLUMN,
    Column,
    colour,
    field,
    printable,
    render_details,
    render_table,
    show,
    shown,
    width,
)
from orchestrator.cli.session import Format

CELLS = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=60)
ROWS = st.lists(st.fixed_dictionaries({"a": CELLS, "b": CELLS, "c": CELLS}), max_size=8)
COLUMNS = [field(name.upper(), name) for name in "abc"]


@given(rows=ROWS, limit=st.integers(min_value=40, max_value=200))
def test_a_table_is_never_wider_than_it_may_be(rows: list[Mapping[str, Any]], limit: int) -> None:
    lines = render_table(rows, COLUMNS, limit)
    assert len(lines) == len(rows) + 1
    assert max(len(line) for line in lines) <= limit


@given(rows=ROWS)
def test_without_a_limit_nothing_is_cut(rows: list[Mapping[str, Any]]) -> None:
    text = "\n".join(render_table(rows, COLUMNS, None))
    assert "…" not in text
    assert all(str(value) in text for row in rows for value in row.values())


@given(st.text())
def test_what_is_printed_cannot_move_the_cursor(text: str) -> None:
    assert printable(text).isprintable()


def test_a_column_keeps_a_few_letters_however_narrow_the_terminal_is() -> None:
    rows = [{"a": "x" * 50, "b": "y" * 50, "c": "z" * 50}]
    assert all(len(cell) >= MIN_COLUMN for cell in render_table(rows, COLUMNS, 1)[1].split(GAP))


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


def test_json_and_yaml_are_the_object_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"name": "täst", "list": [1, None, True], "when": "2026-11-21T00:00:00Z", "no": "no"}
    show(data, Format.JSON, list)
    assert json.loads(capsys.readouterr().out) == data
    show(data, Format.YAML, list)
    assert yaml.safe_load(capsys.readouterr().out) == data
    show(data, Format.TABLE, lambda: ["a", "b"])
    assert capsys.readouterr().out == "a\nb\n"


def test_a_column_shows_what_its_function_says() -> None:
    assert render_table([{"x": 2}], [Column("DOUBLE", lambda row: str(row["x"] * 2))], None) == ["DOUBLE", "4"]
