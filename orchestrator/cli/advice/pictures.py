# SPDX-License-Identifier: Apache-2.0
"""The GPU map and capacities as one SVG file each: no script, no link, light and dark by the viewer's own scheme.

A VM's colour is its tenant's; whoever cannot tell colours apart reads names in the bars, in full as a tooltip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from orchestrator.cli.advice.gpu_map import label_of, slots_text
from orchestrator.cli.output import shown
from orchestrator.core.advice.gpu_map import HIDDEN_VM
from orchestrator.core.errors import InvalidInput, why_unwritable
from orchestrator.core.geometry.cut import cut_words

Row = Mapping[str, Any]

_WIDTH: Final = 760
_MARGIN: Final = 16
_COLUMN: Final = (_WIDTH - 3 * _MARGIN) // 2
"""GPUs stand in two."""
_BAR: Final = 24
_LINE: Final = 18
_CHARACTER: Final = 6.7
"""Of the font below, in its size."""
_COLOURS: Final = 8
_STYLE: Final = """
text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1c2733}
.back{fill:#fff}.title{font-size:15px;font-weight:600}.host{font-weight:600}.dim{fill:#5b6875}
.free{fill:#fff;stroke:#9aa7b4;stroke-dasharray:3 3}.empty{fill:#f1f4f7;stroke:#9aa7b4}
.unusable{fill:#f6dede;stroke:#b4443e}.hidden{fill:#d5dbe1;stroke:#7b8894}.vm{stroke:#1c2733;stroke-opacity:.45}
.t0{fill:#a9d18e}.t1{fill:#8fbfe8}.t2{fill:#f4c27a}.t3{fill:#d6a8e0}.t4{fill:#8fd9cf}.t5{fill:#f2a5a0}.t6{fill:#d9d27c}.t7{fill:#b9b4f0}
@media(prefers-color-scheme:dark){text{fill:#e6ebf0}.back{fill:#151b21}.dim{fill:#9aa7b4}.free{fill:#151b21;stroke:#5b6875}
.empty{fill:#222b34;stroke:#5b6875}.unusable{fill:#4a2523;stroke:#d9706a}.hidden{fill:#36414c;stroke:#7b8894}.vm{stroke:#e6ebf0}
.t0{fill:#3f6b2a}.t1{fill:#24567f}.t2{fill:#7d5516}.t3{fill:#6a3a77}.t4{fill:#1e6a60}.t5{fill:#83352f}.t6{fill:#615b12}.t7{fill:#4a4494}}
"""


def gpu_map_svg(rows: Sequence[Row]) -> str:
    """Each GPU as a bar of its slots, by host."""
    tenants = sorted({str(cell["tenant"]) for row in rows for cell in row["cells"] if cell["tenant"]})
    colours = {tenant: f"t{number % _COLOURS}" for number, tenant in enumerate(tenants)}
    parts: list[str] = []
    y = _MARGIN + _LINE
    for host, gpus in groupby(rows, key=lambda row: row["host"]):
        y += _LINE + 6
        if host is not None:
            parts.append(_text(_MARGIN, y, f"host {shown(host)}", "host"))
        y += 6
        for number, row in enumerate(gpus):
            left = number % 2
            y += 0 if left else _LINE + _BAR + 8
            parts += _gpu(row, _MARGIN + left * (_COLUMN + _MARGIN), y - _LINE - _BAR - 8, colours)
    y += _LINE
    for tenant in tenants:
        parts.append(f'<rect class="vm {colours[tenant]}" x="{_MARGIN}" y="{y}" width="12" height="12"/>')
        parts.append(_text(_MARGIN + 18, y + 10, f"tenant {shown(tenant)}", "dim"))
        y += _LINE
    return _picture(f"{len(rows)} GPUs", y, parts)


def capacity_svg(rows: Sequence[Row]) -> str:
    """How many more VMs of each profile fit, as bars of one scale."""
    most = max((row["fits_now"] for row in rows), default=0) or 1
    parts: list[str] = []
    y = _MARGIN + 2 * _LINE
    for row in rows:
        y += _LINE
        parts.append(_text(_MARGIN, y - 4, shown(row["profile"]), ""))
        length = round((_WIDTH - 2 * _MARGIN - 60) * row["fits_now"] / most)
        why = (row.get("reason") or {}).get("message") or f"{row['fits_now']} more fit"
        parts.append(_bar("vm t1" if length else "empty", _MARGIN, y, max(length, 2), shown(why)))
        parts.append(_text(_MARGIN + max(length, 2) + 8, y + 16, str(row["fits_now"]), "host"))
        y += _BAR + 8
    return _picture("How many more VMs fit now", y, parts)


def write_svg(path: Path, picture: str) -> None:
    """A picture that was there is replaced.

    :raises InvalidInput: ``svg.unwritable``
    """
    try:
        path.write_text(picture, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = f"cannot write {ascii(str(path))[1:-1]}: {why_unwritable(error)}"
        raise InvalidInput("svg.unwritable", why, hint="name a file in a directory you may write to") from error


def _gpu(row: Row, x: int, y: int, colours: Mapping[str, str]) -> Iterator[str]:
    state = "empty" if not row["slots"] else shown(cut_words(row["cut"]))
    free = "" if row["free"] is None or not row["slots"] else f", {row['free']} of {row['slots']} slots free"
    about = f"{shown(row['gpu'])}  {shown(row['model'])}  {state}{free}"
    yield _text(x, y + 12, _cut(about, _COLUMN), "dim")
    y += _LINE
    if row["unusable"] is not None:
        yield _bar("unusable", x, y, _COLUMN, f"not used: {shown(row['unusable'])}")
    elif not row["slots"]:
        yield _bar("empty", x, y, _COLUMN, "empty: it may be cut in any way")
    width = _COLUMN / row["slots"] if row["slots"] else 0
    for cell in row["cells"]:
        yield from _cell(cell, x, y, width, colours)


def _cell(cell: Row, x: int, y: int, width: float, colours: Mapping[str, str]) -> Iterator[str]:
    left, right = (round(x + width * slot) for slot in (cell["start"], cell["start"] + cell["size"]))
    where = slots_text(cell["start"], cell["size"])
    if cell["vm"] is None:
        yield _bar("free", left, y, right - left, f"free: {where}")
        return
    label, profile = shown(label_of(cell)), shown(cell["profile"]) if cell["profile"] else ""
    kind = "hidden" if cell["vm"] == HIDDEN_VM else f"vm {colours.get(str(cell['tenant']), 'hidden')}"
    yield _bar(kind, left, y, right - left, f"{label}  {profile}  {where}")
    yield _text(left + 4, y + 16, _cut(shown(cell["vm"]), right - left - 8), "")


def _cut(text: str, width: int) -> str:
    """As much as fits."""
    letters = max(int(width / _CHARACTER), 0)
    return text if len(text) <= letters else f"{text[: letters - 1]}…" if letters > 1 else ""


def _bar(kind: str, x: int, y: int, width: int, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{max(width - 1, 1)}" height="{_BAR}" rx="3">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _picture(title: str, height: int, parts: Sequence[str]) -> str:
    bottom = height + _MARGIN
    size = f'viewBox="0 0 {_WIDTH} {bottom}" width="{_WIDTH}" height="{bottom}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="back" width="{_WIDTH}" height="{bottom}"/>',
            _text(_MARGIN, _MARGIN + 14, title, "title"),
            *parts,
            "</svg>\n",
        )
    )
