# SPDX-License-Identifier: Apache-2.0
"""On whose behalf the current request runs: the audit and each operation say it, no use case has it as an argument."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from orchestrator.core.operation import Asked

_SERVER: Final = Asked(by="server", of_pool=True)
_ACTOR: ContextVar[Asked] = ContextVar("actor", default=_SERVER)


def act_for(actor: str, *, of_pool: bool = False) -> None:
    """From here on in this request (each has a context of its own, which its threads inherit). ``of_pool``: it has a
    role in the whole pool."""
    _ACTOR.set(Asked(by=actor, of_pool=of_pool))


def actor() -> str:
    """``uid:1000``, ``token:3f2a…``; ``server`` for what it does by itself."""
    return _ACTOR.get().by


def asked(why: str | None) -> Asked:
    """Of an operation that begins. ``why``: nobody asked for it itself; a tenant is not named to another then."""
    acting = _ACTOR.get()
    return acting if why is None else replace(acting if acting.of_pool else _SERVER, why=why)
