# SPDX-License-Identifier: Apache-2.0
"""From where and with what the current request came: every audit record says it, no use case has it as an argument."""

from __future__ import annotations

from contextvars import ContextVar

from orchestrator.core.tenancy.audit import Origin

_ORIGIN: ContextVar[Origin | None] = ContextVar("request_origin", default=None)


def came_from(origin: Origin | None) -> None:
    """From here on in this request (each has a context of its own, which its threads inherit)."""
    _ORIGIN.set(origin)


def request_origin() -> Origin | None:
    """None: no request, the server does it by itself."""
    return _ORIGIN.get()
