# SPDX-License-Identifier: Apache-2.0
"""Reads a CSV table, strictly: every row is validated, every mistake comes with file, line and reason."""

from __future__ import annotations

import csv
import io
import types
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.catalogue.problems import Problem, invalid
from orchestrator.core.errors import Bug, why_unreadable
from orchestrator.core.names import closest
from orchestrator.core.plain_words import in_plain_words

_PACKAGE = Path(__file__).resolve().parent.parent


def profiles_directory() -> Path:
    """The ``vgpu_profiles`` directory.

    :raises Bug: ``catalogue.missing`` when the installation lacks it.
    """
    candidates = (_PACKAGE / "_data" / "vgpu_profiles", _PACKAGE.parent / "vgpu_profiles")
    for candidate in candidates:
        if (candidate / "nvidia").is_dir():
            return candidate
    raise Bug(
        "catalogue.missing",
        "this installation has no vgpu_profiles directory",
        details="looked in " + ", ".join(str(c) for c in candidates),
        hint="install vgpuctl again",
    )


def nearest_field(form: type[BaseModel], place: Sequence[str | int]) -> str | None:
    """``place``: of a mistake, as pydantic tells it. None: no field there is spelt alike."""
    kinds: list[object] = [form]
    for part in place[:-1]:
        # a name that is no field is that of one form of several, which pydantic puts between
        kinds = [inner for kind in kinds for inner in _inside(kind, part)] or kinds
    known = [name for kind in kinds if _is_form(kind) for name in _fields(kind)]
    return next(iter(closest(str(place[-1]), known)), None)


def _inside(kind: Any, part: str | int) -> Iterator[object]:
    if _is_form(kind):
        if part in (fields := _fields(kind)):
            yield from _alternatives(fields[str(part)])
    elif get_args(kind) and (isinstance(part, int) or get_origin(kind) is dict):
        yield from _alternatives(next(argument for argument in reversed(get_args(kind)) if argument is not Ellipsis))


def _alternatives(kind: Any) -> Iterator[object]:
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in {Union, types.UnionType}:
        yield from (inner for argument in get_args(kind) for inner in _alternatives(argument))
    else:
        yield kind


def _is_form(kind: Any) -> bool:
    return isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, BaseModel)


def _fields(form: Any) -> dict[str, object]:
    return {field.alias or name: field.annotation for name, field in form.model_fields.items()}


_BLANK = frozenset({"", "unknown"})


class TableRow(BaseModel):
    """Base of row models. An empty cell is not passed on, so a field without a default must be filled."""

    model_config = ConfigDict(extra="forbid", frozen=True)


RowT = TypeVar("RowT", bound=TableRow)


def read_table(path: Path, row_type: type[RowT]) -> tuple[RowT, ...]:
    """All rows of a table, in order.

    :raises InvalidInput: ``catalogue.invalid``
    """
    rows: list[RowT] = []
    problems: list[Problem] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise invalid([Problem(file=str(path), line=0, reason=f"cannot be read: {why_unreadable(error)}")]) from error
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
        _check_header(path, header, row_type)
        for cells in reader:
            row = _validate(path, reader.line_num, header, cells, row_type, problems)
            if row is not None:
                rows.append(row)
    except csv.Error as error:
        problems.append(Problem(file=str(path), line=reader.line_num, reason=str(error)))
    if problems:
        raise invalid(problems)
    return tuple(rows)


def _check_header(path: Path, header: list[str], row_type: type[TableRow]) -> None:
    known = set(row_type.model_fields)
    problems = [f"unknown column {name!r}" for name in header if name not in known]
    problems += [f"column {name!r} is missing" for name in row_type.model_fields if name not in header]
    if len(set(header)) != len(header):
        problems.append("a column appears twice")
    if problems:
        raise invalid([Problem(file=str(path), line=1, reason=reason) for reason in problems])


def _validate(
    path: Path, line: int, header: list[str], cells: list[str], row_type: type[RowT], problems: list[Problem]
) -> RowT | None:
    if len(cells) != len(header):
        problems.append(
            Problem(file=str(path), line=line, reason=f"{len(cells)} cells in a table of {len(header)} columns")
        )
        return None
    filled = {name: cell for name, cell in zip(header, cells, strict=True) if cell not in _BLANK}
    try:
        return row_type.model_validate_strings(filled)
    except ValidationError as error:
        problems += [
            Problem(file=str(path), line=line, reason=describe(detail)) for detail in error.errors(include_url=False)
        ]
    return None


def describe(detail: ErrorDetails, form: type[BaseModel] | None = None) -> str:
    """A pydantic error as ``field: what is wrong``; of the ``form`` that was checked, the field that was meant."""
    field = ".".join(str(part) for part in detail["loc"])
    message = in_plain_words(detail["type"], detail["msg"], detail.get("ctx", {}))
    near = nearest_field(form, detail["loc"]) if form is not None and detail["type"] == "extra_forbidden" else None
    if near is not None:
        return f"{field}: {message}; did you mean {near}?"
    if detail["type"] == "missing" and field == "schema_version":
        return f"{field}: {message}; a file begins with 'schema_version: 1'"
    got = "nothing" if detail["input"] is None else ascii(detail["input"])[:60]
    shown = "" if detail["type"] == "missing" else f", got {got}"
    return f"{field or 'the file'}: {message}{shown}{_how_to_write(detail)}"


_EXAMPLES: Final = {"memory": "4GiB", "disk": "20GiB", "size": "200GiB", "lease": "8h"}
"""Of texts that people write as a number."""


def _how_to_write(detail: ErrorDetails) -> str:
    """What YAML reads otherwise than it was meant."""
    kind, value = detail["type"], detail["input"]
    if kind == "string_type" and isinstance(value, bool | int | float | date):
        example = _EXAMPLES.get(str(detail["loc"][-1]))
        return f": say the unit, like {example}" if example else ": a text stands in quotes"
    is_number = isinstance(value, str) and value.isascii() and value.isdigit()
    return ": a number stands without quotes" if kind == "int_type" and is_number else ""
