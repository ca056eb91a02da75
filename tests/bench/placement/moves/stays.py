# SPDX-License-Identifier: Apache-2.0
"""A VM that is not to be moved says so by a need: nothing else of placement asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.core.placement.rules.rule import Need
from orchestrator.core.placement.views import Request


@dataclass(frozen=True, slots=True)
class _Stays(Need):
    codes = ()

    @property
    def filters(self) -> bool:
        return False

    def message(self, code: str) -> str:
        raise AssertionError(code)


STAYS: Final = _Stays()


def may_move(request: Request) -> bool:
    return STAYS not in request.needs
