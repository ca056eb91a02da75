# SPDX-License-Identifier: Apache-2.0
"""How many more VMs fit, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from orchestrator.cli.output import shown
from orchestrator.cli.table import Column, Fit, field


def _with_moves(row: Mapping[str, Any]) -> str:
    return str(row["fits_with_moves"]) if row["exact"] else f"at least {row['fits_with_moves']}"


_COLUMNS: Final = (field("PROFILE", "profile", Fit.WHOLE), field("FITS NOW", "fits_now"))
_WITH_MOVES: Final = Column("WITH MOVES", _with_moves, rank=lambda row: row["fits_with_moves"])


_WHY_NONE: Final = Column("WHY NONE", lambda row: shown((row.get("reason") or {}).get("message")), Fit.WRAP)


def capacity_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """``at least`` marks numbers that are not proved to be the most; tenants get no moves told."""
    moves = (_WITH_MOVES,) if not rows or any(row["fits_with_moves"] is not None for row in rows) else ()
    return (*_COLUMNS, *moves, *((_WHY_NONE,) if any(row.get("reason") for row in rows) else ()))
