# SPDX-License-Identifier: Apache-2.0
"""Consoles that are open in browsers: what a ticket for one is bound to, who of those at one writes. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

ConsoleKind = Literal["serial", "graphical"]
TICKET_S: Final = 30.0
"""Between a ticket and the stream that is opened with it."""
KEPT_S: Final = 30.0
"""A session whose controller has said nothing for so long is over."""
OPENED_WITHIN_S: Final = 120.0
"""So long a host may take to open a console: nobody renews it meanwhile."""
RENEWED_S: Final = 10.0
"""How often a controller says that a session goes on."""
IDLE_S: Final = 1800.0
"""Nothing was typed for so long."""
LONGEST_S: Final = 12 * 3600.0
MAX_OF_ACTOR: Final = 8
"""Sessions and unused tickets of one person, over all controllers."""


@dataclass(frozen=True, kw_only=True)
class ConsoleSession:
    """A ticket, and once it was used, the console that was opened with it."""

    id: str
    """SHA-256 of the ticket."""
    vm: str
    """Its id."""
    kind: ConsoleKind
    actor: str
    """Who it was given to, as the audit names it."""
    bound: str
    """What :func:`binding` says of who may use it."""
    until: float
    """Seconds since the epoch. It is over then, unless it is renewed."""
    opened_at: float | None = None
    """None: its ticket was not used yet."""
    claimed_at: float | None = None
    """When it took the keyboard; None: it never did."""


def session_id(ticket: str) -> str:
    """Under which a ticket is kept: what is stored opens nothing."""
    return hashlib.sha256(ticket.encode()).hexdigest()


def binding(credential: str, origin: str | None) -> str:
    """``credential``: a token's text, or a uid. ``origin``: of the page that the stream is for; None: of no page."""
    return hashlib.sha256(f"{credential}\0{origin or ''}".encode()).hexdigest()


def writer_of(sessions: Sequence[ConsoleSession]) -> ConsoleSession | None:
    """Of those at one console the one whose keys reach the guest: who took the keyboard last. All controllers find the
    same one, whatever they wrote at once."""
    claims = [(session.claimed_at, session.id, session) for session in sessions if session.claimed_at is not None]
    return max(claims)[2] if claims else None


_REPORT: Final = (
    rb"\x1b\[\??[0-9]+;[0-9]+R"  # where the cursor is
    rb"|\x1b\[[?>=]?[0-9;]*[cnt]"  # what the terminal is and can, its state, its size
    rb"|\x1b\[\??[0-9;]+\$y|\x1b\[\?[0-9;]*u"  # a mode, how keys are told
    rb"|\x1b\[[IO]"  # the window came to the front, or went
    rb"|\x1b[P\]_^][^\x07\x1b]*(?:\x07|\x1b\\)"  # settings, colours, its name
)
_REPORTS: Final = re.compile(rb"(?:" + _REPORT + rb")+")
"""ECMA-48 §8.3, and ctlseqs of xterm. Shift-F3 looks as the place of a cursor does, and counts as that."""


def is_typed(data: bytes) -> bool:
    """Whether a person sent it to a serial console. Not so what a terminal answers by itself: a guest may ask it again
    and again. ``data``: of one message, as terminals send reports whole."""
    return bool(data) and _REPORTS.fullmatch(data) is None
