# SPDX-License-Identifier: Apache-2.0
"""Results on standard output: the API's JSON as it is, the same as YAML, or a table for people."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import typer

from orchestrator.cli.session import Format

GAP: Final = "  "
PIPE_EXIT: Final = 141
"""128 + SIGPIPE: what a shell reports for a program whose reader went away."""
MIN_WIDTH: Final = 40
LONG_LIST: Final = 100
"""Of more objects each is one line of JSON: indenting ten thousand takes longer than getting them."""
_WRAPPED_AT: Final = 100
"""Sentences, where there is no terminal."""
_COLOURS: Final = {
    "green": "32", "yellow": "33", "red": "31", "dim": "2", "bold": "1",
}  # fmt: skip
STATE_COLOURS: Final = {
    "running": "green", "ready": "green", "done": "green",
    "creating": "yellow", "adopting": "yellow", "starting": "yellow", "stopping": "yellow",
    "moving": "yellow", "deleting": "yellow",
    "queued": "yellow",
    "undoing": "yellow", "enrolling": "yellow", "removing": "yellow",
    "failed": "red", "stuck": "red", "unreachable": "red", "quarantined": "red", "undone": "red",
    "lost": "red", "forgotten": "dim",
}  # fmt: skip


_OUR_COLOUR: Final = re.compile(r"(\x1b\[[0-9]{1,2}m)")
_TERMINAL_CODE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-B]|[=>78cM])")
"""ECMA-48 control sequences, and the few of the VT100 that boot loaders and getty write."""


def shown(value: object) -> str:
    """Any JSON value on one line. Control characters are escaped: names on hosts may be hostile."""
    if isinstance(value, str):
        return (value if value.isprintable() else printable(value)) or "-"
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return shown(value[0]) if len(value) == 1 else ", ".join(map(shown, value))
    return printable(str(value))


def printable(text: str) -> str:
    """The text with everything escaped that could move the cursor or turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_line(line: str) -> str:
    """A line with our own colours in it, and nothing else that a terminal would obey."""
    if line.isprintable():
        return line
    parts = _OUR_COLOUR.split(line)
    return "".join(part if _OUR_COLOUR.fullmatch(part) else printable(part) for part in parts)


def guest_lines(content: bytes) -> list[str]:
    """What a guest printed, for a terminal: colours and the like are left out, what else it would obey is escaped."""
    text = _TERMINAL_CODE.sub("", content.decode(errors="replace")).expandtabs()
    return [printable(line.rstrip("\r")) for line in text.removesuffix("\n").split("\n")]


def width() -> int | None:
    """Columns of the terminal (or ``COLUMNS``); None when the output goes elsewhere: then nothing is cut."""
    if not os.environ.get("COLUMNS", "").isdigit() and not _is_terminal():
        return None
    return max(shutil.get_terminal_size().columns, MIN_WIDTH)


def text_width() -> int:
    """Columns for sentences: there is always an end of the line."""
    return width() or _WRAPPED_AT


def somebody_types() -> bool:
    """Whether standard input is a terminal; it may be closed (``<&-``)."""
    return sys.stdin is not None and sys.stdin.isatty()


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def colour(text: str, name: str | None, *, stream_is_terminal: bool | None = None) -> str:
    """Coloured on a terminal unless ``NO_COLOR`` is set or the terminal is dumb."""
    if name is None:
        return text
    terminal = _is_terminal() if stream_is_terminal is None else stream_is_terminal
    if not terminal or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m"


def render_details(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """``label  value`` lines, values under each other."""
    size = max(len(label) for label, _ in pairs)
    return [f"{colour(label.ljust(size), 'dim')}{GAP}{_state(value)}" for label, value in pairs]


def _state(value: str) -> str:
    return colour(value, STATE_COLOURS.get(value))


def show(data: object, output: Format, table: Callable[[], Sequence[str]], *, name: str | None = None) -> None:
    """Print ``data``; ``table`` gives the lines for people. ``name``: of what ``data`` is an operation on.

    :raises typer.Exit: 141 when the reader went away (``vgpuctl … | head``)
    """
    try:
        named = output is Format.NAME and name is not None
        print(shown(name) if named else _text(data, output, table), flush=True)
    except BrokenPipeError as error:
        raise typer.Exit(PIPE_EXIT) from error


def show_plain(data: object, output: Format, lines: Callable[[], Sequence[str]]) -> None:
    """As ``show``; the lines have no colours, so whatever a terminal would obey in them was not ours."""
    show(data, output, lambda: [printable(line) for line in lines()])


def _of_one(data: Mapping[str, object], output: Format) -> str:
    """One object as its name, or as two lines of CSV."""
    return shown(data.get("name", data.get("id"))) if output is Format.NAME else csv_of([data])


def csv_of(rows: Sequence[Mapping[str, object]]) -> str:
    """Objects with their members as columns; empty where there is nothing."""
    members = list(dict.fromkeys(member for row in rows for member in row))
    return csv_text([members, *([_cell(row.get(member)) for member in members] for row in rows)])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    """RFC 4180, with this system's line ends."""
    import csv
    import io

    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return "\n".join(map(printable, buffer.getvalue().rstrip("\n").split("\n")))


def _text(data: object, output: Format, table: Callable[[], Sequence[str]]) -> str:
    if output is Format.JSON:
        if isinstance(data, Sequence) and len(data) > LONG_LIST:
            return "[\n" + ",\n".join(map(json.dumps, data)) + "\n]"
        return json.dumps(data, indent=2)
    if output is Format.YAML:
        import yaml

        text = str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True)).rstrip("\n")
        if all(line.isprintable() for line in text.split("\n")):
            return text
        return str(yaml.safe_dump(data, sort_keys=False)).rstrip("\n")  # every letter beyond ASCII escaped
    if output.path is not None:
        from orchestrator.cli.jsonpath import parse_path, values_at

        return "\n".join(map(printable, values_at(data, parse_path(output.path))))
    if output in {Format.NAME, Format.CSV} and isinstance(data, Mapping):
        return _of_one(data, output)
    return "\n".join(map(safe_line, table()))
