# SPDX-License-Identifier: Apache-2.0
"""From where and with what the current request came, which every audit record says, and how many it has written: no
use case has either as an argument."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from orchestrator.core.tenancy.audit import Origin


@dataclass
class _Current:
    origin: Origin | None
    recorded: int = 0


_CURRENT: ContextVar[_Current | None] = ContextVar("current_request", default=None)


def came_from(origin: Origin | None) -> None:
    """From here on in this request (each has a context of its own, which its threads inherit)."""
    _CURRENT.set(_Current(origin))


def request_origin() -> Origin | None:
    """None: no request, the server does it by itself."""
    current = _CURRENT.get()
    return None if current is None else current.origin


def note_recorded(count: int) -> None:
    """So many records more were committed."""
    current = _CURRENT.get()
    if current is not None:
        current.recorded += count


def recorded() -> int:
    """Records that the request has committed until now, in whichever of its threads."""
    current = _CURRENT.get()
    return 0 if current is None else current.recorded
