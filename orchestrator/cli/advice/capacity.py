# SPDX-License-Identifier: Apache-2.0
"""How many more VMs fit, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def render_capacity(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line per profile. ``at least`` marks numbers that are not proved to be the most; tenants get no moves told."""
    if rows and all(row["fits_with_moves"] is None for row in rows):
        return _table(("PROFILE", "FITS NOW"), [(row["profile"], str(row["fits_now"])) for row in rows])
    head = ("PROFILE", "FITS NOW", "WITH MOVES")
    return _table(head, [(row["profile"], str(row["fits_now"]), _with_moves(row)) for row in rows])


def _with_moves(row: Mapping[str, Any]) -> str:
    return str(row["fits_with_moves"]) if row["exact"] else f"at least {row['fits_with_moves']}"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    table = [head, *rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    return ["  ".join(cell.ljust(widths[i]) for i, cell in enumerate(line)).rstrip() for line in table]
