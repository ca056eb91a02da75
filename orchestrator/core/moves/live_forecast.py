# SPDX-License-Identifier: Apache-2.0
"""How long a VM that runs takes to another host, and how long its guest stands still: from what it has to move, as its
host measured that, and by moves that were measured. Pure.

QEMU sends memory, and what was written meanwhile, until what is left goes in the longest pause that it was given
(migration/migration.c, migration_iteration_run); that goes while the guest stands still, and so does the state of
vGPUs. What is learned of two hosts is how long both take for what this says is to be sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from orchestrator.core.actions.live_move import MoveLoad
from orchestrator.core.moves.forecast import Forecast, MeasuredCopy, copy_time, per_byte_of
from orchestrator.core.units import MIB

_PAUSE_S: Final = 0.3
"""QEMU's own longest pause (downtime-limit), which a guest that writes makes full use of."""
_MAX_PAUSE_S: Final = 60.0
_SPARE: Final = 1.2
"""More than the state of vGPUs is expected to take, so that the move ends at the first try."""
_MAX_WRITTEN: Final = 0.8
"""Of the bandwidth: a guest that writes faster is slowed (auto-converge)."""
_AT_LEAST: Final = MIB
"""Of devices that nobody counts."""


class MeasuredMove(NamedTuple):
    """A VM that moved while it ran. ``disk_bytes``: of its disk; ``sent_bytes``: of all, as QEMU counted."""

    load: MoveLoad
    disk_bytes: int
    sent_bytes: int
    seconds: float
    pause_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveForecast:
    """Of one move."""

    takes: Forecast | None
    """None: nothing was measured."""
    pause: Forecast | None

    max_pause_ms: int
    """That its guest may stand still for: of the state of its vGPUs, and never learned, for QEMU uses what it gets."""


def live_forecast(
    load: MoveLoad, disk_bytes: int, measured: Sequence[MeasuredMove], *, max_bytes_per_s: int | None = None
) -> LiveForecast:
    """``disk_bytes``: of its disk, that go along. ``measured``: between the same hosts, or of others where none was."""
    usual = per_byte_of([MeasuredCopy(move.sent_bytes, move.seconds) for move in measured])
    slower = 1.0 if usual is None or max_bytes_per_s is None else max(1.0, 1 / (max_bytes_per_s * usual))
    per_byte = None if usual is None else usual * slower
    expected, stop = _to_send(load, per_byte)
    takes, pauses = list[MeasuredCopy](), list[MeasuredCopy]()
    for move in measured:
        sent, last = _to_send(move.load, usual)
        takes.append(MeasuredCopy(sent + move.disk_bytes, move.seconds))
        pauses.append(MeasuredCopy(last, move.pause_s))
    state_s = _SPARE * (load.device_bytes or 0) * (per_byte or 0)
    return LiveForecast(
        takes=copy_time(math.ceil((expected + disk_bytes) * slower), takes),
        pause=copy_time(math.ceil(stop * slower), pauses),
        max_pause_ms=math.ceil(1000 * min(_PAUSE_S + state_s, _MAX_PAUSE_S)),
    )


def _to_send(load: MoveLoad, per_byte: float | None) -> tuple[int, int]:
    """Bytes in all, and of them while the guest stands still. ``per_byte``: seconds; None: not known."""
    device = (load.device_bytes or 0) + _AT_LEAST
    if per_byte is None:
        return load.memory_bytes + device, device
    last = min(load.memory_bytes, _PAUSE_S / per_byte)
    written = min((load.dirty_per_s or 0) * per_byte, _MAX_WRITTEN)
    before = (load.memory_bytes - last) / (1 - written)
    return math.ceil(before + last + device), math.ceil(last + device)
