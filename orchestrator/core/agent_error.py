# SPDX-License-Identifier: Apache-2.0
"""An agent's error as the control plane keeps and shows it: any host may be a bad one, so its words are bounded."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from orchestrator.core.errors import Reason, Unknown, VgpuctlError, error_from_dict

_CODE: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", re.ASCII)
_CODE_CHARACTERS: Final = 60
_LINE: Final = 300
_DETAILS: Final = 4000
_REASONS: Final = 20
_HOST: Final = "HOST"
"""An agent does not know what its host is called: commands in its hints have this instead."""


def one_line(text: str, most: int = _LINE) -> str:
    """Printable, in one line, at most so many characters."""
    cut = text[: most + 1]
    shown = "".join(character if character.isprintable() else " " for character in cut)
    return shown if len(cut) <= most else f"{shown[: most - 1]}…"


def agent_error(data: dict[str, object], host: str = _HOST) -> VgpuctlError:
    """What an agent answered instead of a result. ``host``: the name that takes the place of HOST in its hint."""
    told = error_from_dict(data)
    if len(told.code) > _CODE_CHARACTERS or _CODE.fullmatch(told.code) is None:
        return Unknown("agent.protocol", "the agent sent an error without a code", details=one_line(told.code))
    error = type(told)(
        told.code,
        one_line(told.message),
        hint=None if told.hint is None else one_line(re.sub(rf"\b{_HOST}\b", host, told.hint)),
        details=None if told.details is None else one_line(told.details, _DETAILS),
        reasons=tuple(_reason(one) for one in told.reasons[:_REASONS]),
    )
    error.of_host = True
    return error


def _reason(told: Reason) -> Reason:
    subjects = tuple(one_line(one) for one in told.subjects[:_REASONS])
    return replace(told, code=one_line(told.code, _CODE_CHARACTERS), message=one_line(told.message), subjects=subjects)
