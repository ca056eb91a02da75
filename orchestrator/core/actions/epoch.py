# SPDX-License-Identifier: Apache-2.0
"""Fencing epochs (actions/host_actions.FencingToken): counted up, and moved to the seconds since 2020 by a restore."""

from __future__ import annotations

from typing import Final

_BEGIN_S: Final = 1_577_836_800.0
"""2020-01-01: seconds since then are higher than any epoch that was counted, and fit the column until 2088."""
_AHEAD_S: Final = 24 * 3600
"""How much a server's clock may be ahead of a host's."""
_COUNTED: Final = 64
"""How many times a server may have raised it while a host heard nothing."""


def restored_epoch(epoch: int, now: float) -> int:
    """Of a host after a restore; ``epoch``: what the backup has."""
    return max(epoch + 1, int(now - _BEGIN_S))


def highest_epoch(seen: int, now: float) -> int:
    """That a server can have reached when a host has ``seen`` that one: more is a lie, which would lock everybody else
    out for ever."""
    return max(seen + _COUNTED, int(now - _BEGIN_S) + _AHEAD_S)
