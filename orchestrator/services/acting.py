# SPDX-License-Identifier: Apache-2.0
"""On whose behalf the current request runs, for the audit: every use case writes it, none has it as an argument."""

from __future__ import annotations

from contextvars import ContextVar

_ACTOR: ContextVar[str] = ContextVar("actor", default="server")


def act_for(actor: str) -> None:
    """From here on in this request (each has a context of its own, which its threads inherit)."""
    _ACTOR.set(actor)


def actor() -> str:
    """``uid:1000``, ``token:3f2a…``; ``server`` for what it does by itself."""
    return _ACTOR.get()
