# SPDX-License-Identifier: Apache-2.0
"""Snapshots as text and back: what the agent sent was checked when it came (core/wire.py)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy.types import UserDefinedType

from orchestrator.core.hosts.snapshot import HostSnapshot

_SNAPSHOT: Final = TypeAdapter(HostSnapshot)
_read: Final = _SNAPSHOT.validator.validate_json


def snapshot_text(snapshot: HostSnapshot) -> str:
    """JSON; equal for equal snapshots."""
    return _SNAPSHOT.dump_json(snapshot).decode()


def snapshot_from_text(text: str) -> HostSnapshot:
    """The inverse; written by older versions it may lack what was not observed then."""
    found: HostSnapshot = _read(text)
    return found


class JsonText(UserDefinedType[str]):
    """For a column of JSON: text that is JSON already."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"
