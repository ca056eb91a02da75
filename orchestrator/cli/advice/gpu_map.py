# SPDX-License-Identifier: Apache-2.0
"""Every GPU drawn as its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_letters, digits
from typing import Any, Final

from orchestrator.core.advice.gpu_map import HIDDEN_VM
from orchestrator.core.geometry.cut import cut_words

Cell = Mapping[str, Any]

_KEYS: Final = ascii_letters + digits
_MORE: Final = "#"
_MIN_WIDTH: Final = 20


def render_gpu_map(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """Lines of at most ``width`` columns (at least 20)."""
    width = max(width, _MIN_WIDTH)
    lines: list[str] = []
    host = None
    for row in rows:
        if row["host"] is not None and row["host"] != host:
            lines += [""] if lines else []
            lines.append(_clip(f"host {row['host']}", width))
            host = row["host"]
        lines += [_clip(line, width) for line in _gpu_lines(row, width)]
    if not lines:
        return ["no GPUs"]
    return [*lines, "", _clip("letter = VM, . = free slot, ~ = empty GPU, x = not used", width)]


def render_summary(rows: Sequence[Mapping[str, Any]], width: int) -> list[str]:
    """A line for each model and way of cutting, and how to see more."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], _kind(row)), []).append(row)
    table = [
        ("MODEL", "CUT", "GPUS", "HOSTS", "FREE SLOTS", "VMS"),
        *map(_summed, sorted(groups), map(groups.get, sorted(groups))),
    ]
    sizes = [max(len(line[at]) for line in table) for at in range(len(table[0]))]
    lines = ["  ".join(text.ljust(size) for text, size in zip(line, sizes, strict=True)).rstrip() for line in table]
    hosts = len({row["host"] for row in rows})
    return [
        _clip(line, width) for line in [*lines, "", f"{hosts} hosts: --host NAME or --model TEXT draws them, --all all"]
    ]


def _kind(row: Mapping[str, Any]) -> str:
    if row["unusable"] is not None:
        return "not used"
    return cut_words(row["cut"]) if row["slots"] else "empty"


def _summed(key: tuple[str, str], rows: Sequence[Mapping[str, Any]] | None) -> tuple[str, ...]:
    known_rows = rows or ()
    slots = sum(row["slots"] or 0 for row in known_rows)
    free = sum(row["free"] or 0 for row in known_rows)
    vms = len({label_of(cell) for row in known_rows for cell in row["cells"] if cell["vm"] is not None})
    hosts = len({row["host"] for row in known_rows})
    return (*key, str(len(known_rows)), str(hosts), f"{free} of {slots}" if slots else "-", str(vms))


def label_of(cell: Cell) -> str:
    """``tenant/vm``, empty for free slots."""
    if cell["vm"] is None:
        return ""
    return f"{cell['tenant']}/{cell['vm']}" if cell["tenant"] else str(cell["vm"])


def slots_text(start: int, size: int) -> str:
    """``slot 3`` or ``slots 0-3``."""
    return f"slot {start}" if size == 1 else f"slots {start}-{start + size - 1}"


def _gpu_lines(row: Mapping[str, Any], width: int) -> list[str]:
    node = "" if row["numa"] is None else f"  NUMA {row['numa']}"
    state = _state(row)
    joined = "" if row["fabric_partition"] is None else f"  fabric partition {row['fabric_partition']}"
    title = f"  {row['gpu']}  {row['model']}{node}{joined}"
    lines = [f"{title}  {state}"] if len(title) + 2 + len(state) <= width else [title, f"    {state}"]
    if row["unusable"] is not None:
        lines.append(f"    not used: {row['unusable']}")
    keyed = _keyed(row["cells"])
    lines.append(f"    [{_bar(row, keyed, width - 6)}]")
    lines += [f"    {key} {_described(cell)}" for key, cell in keyed if cell["vm"] is not None]
    return lines


def _state(row: Mapping[str, Any]) -> str:
    if not row["slots"]:
        return "empty"
    cut = cut_words(row["cut"])
    return (
        f"{cut}, {row['slots']} slots" if row["free"] is None else f"{cut}, {row['free']} of {row['slots']} slots free"
    )


def _keyed(cells: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Cells with the letter that stands for them; a VM with several places on the GPU keeps its letter."""
    letters: dict[str, str] = {}
    return [(_key(cell, letters), cell) for cell in cells]


def _key(cell: Cell, letters: dict[str, str]) -> str:
    if cell["vm"] is None:
        return "."
    if cell["vm"] == HIDDEN_VM:
        return "-"
    return letters.setdefault(label_of(cell), _KEYS[len(letters)] if len(letters) < len(_KEYS) else _MORE)


def _described(cell: Cell) -> str:
    profile = cell["profile"] + "  " if cell["profile"] else ""
    return f"{label_of(cell)}  {profile}{slots_text(cell['start'], cell['size'])}"


def _bar(row: Mapping[str, Any], keyed: Sequence[tuple[str, Cell]], width: int) -> str:
    """The slots in ``width`` columns at most, all slots equally wide where they fit, else shrunk in proportion."""
    slots = row["slots"]
    if not slots:
        return ("x" if row["unusable"] is not None else "~") * width
    each = width // slots
    inner = each * slots if each else width
    return "".join(_drawn(key, cell, slots, inner) for key, cell in keyed)


def _drawn(key: str, cell: Cell, slots: int, inner: int) -> str:
    begin: int = cell["start"] * inner // slots
    end: int = (cell["start"] + cell["size"]) * inner // slots
    columns = end - begin
    if cell["vm"] is None:
        return "".join("|" if _ends_slot(at, slots, inner) else "." for at in range(begin, end))
    text = f" {label_of(cell)} "
    if columns > len(text):
        return text.center(columns - 1, key) + "|"
    return key * columns if columns <= 1 else key * (columns - 1) + "|"


def _ends_slot(at: int, slots: int, inner: int) -> bool:
    """Whether column ``at`` is the last of a slot that is at least two columns wide."""
    return inner >= 2 * slots and (at + 1) % (inner // slots) == 0


def _clip(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + ">"
