# SPDX-License-Identifier: Apache-2.0
"""How many more VMs fit, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from orchestrator.cli.output import shown
from orchestrator.cli.table import Column, Fit, field

_COLUMNS: Final = (field("PROFILE", "profile", Fit.WHOLE), field("FITS NOW", "fits_now"))
_WHY_NONE: Final = Column("WHY NONE", lambda row: shown((row.get("reason") or {}).get("message")), Fit.WRAP)


def capacity_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Why none fits, where that is so of any."""
    return (*_COLUMNS, _WHY_NONE) if any(row.get("reason") for row in rows) else _COLUMNS
