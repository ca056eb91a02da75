# SPDX-License-Identifier: Apache-2.0
"""How long a VM that runs takes to another host, and how long its guest stands still: from what it has to move, as its
host measured that, and by moves that were measured. Pure.

QEMU sends memory, and what was written meanwhile, until what is left goes in the longest pause that it was given
(migration/migration.c, migration_iteration_run); that goes while the guest stands still, and so does the state of
vGPUs. What is learned of two hosts is how long both take for what this says is to be sent.

A limit on bandwidth holds while the guest runs and not while it stands still (migration_completion lifts it). QEMU
reckons with it all the same: what may be left for that pause is the limited bandwidth by the longest pause. So that is
given longer by as much.
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
_QEMU_MAX_PAUSE_S: Final = 2000.0
"""QEMU takes no longer one (MAX_MIGRATE_DOWNTIME_SECONDS, migration/options.c)."""
_SPARE: Final = 1.2
"""More than the state of vGPUs is expected to take, so that the move ends at the first try."""
_TELLS_BANDWIDTH: Final = 256 * MIB
"""Sent: of what was less the time is that of QEMU's start over there, and a bandwidth reckoned from it would have a
guest stand still while its memory is sent."""
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
    """That its guest may stand still for at the bandwidth at which it is sent: of the state of its vGPUs, and never
    learned, for QEMU uses what it gets."""


def live_forecast(
    load: MoveLoad, disk_bytes: int, measured: Sequence[MeasuredMove], *, max_bytes_per_s: int | None = None
) -> LiveForecast:
    """``disk_bytes``: of its disk, that go along. ``measured``: between the same hosts, or of others where none was."""
    large = [move for move in measured if move.sent_bytes >= _TELLS_BANDWIDTH]
    usual = per_byte_of([MeasuredCopy(move.sent_bytes, move.seconds) for move in large])
    slower = 1.0 if usual is None or max_bytes_per_s is None else max(1.0, 1 / (max_bytes_per_s * usual))
    expected, stop = _to_send(load, usual, slower)
    takes, pauses = list[MeasuredCopy](), list[MeasuredCopy]()
    for move in measured:
        sent, last = _to_send(move.load, usual)
        takes.append(MeasuredCopy(sent + move.disk_bytes, move.seconds))
        pauses.append(MeasuredCopy(last, move.pause_s))
    return LiveForecast(
        takes=copy_time(math.ceil((expected - stop + disk_bytes) * slower + stop), takes),
        pause=copy_time(stop, pauses),
        max_pause_ms=math.ceil(1000 * _max_pause_s(load.device_bytes or 0, usual, slower, max_bytes_per_s)),
    )


def _max_pause_s(device: int, usual: float | None, slower: float, max_bytes_per_s: int | None) -> float:
    if usual is not None:
        return min(slower * min(_PAUSE_S + _SPARE * device * usual, _MAX_PAUSE_S), _QEMU_MAX_PAUSE_S)
    unknown_s = _SPARE * device / max_bytes_per_s if max_bytes_per_s else 0.0
    return min(_PAUSE_S + unknown_s, _QEMU_MAX_PAUSE_S)


def _to_send(load: MoveLoad, per_byte: float | None, slower: float = 1.0) -> tuple[int, int]:
    """Bytes in all, and of them while the guest stands still. ``per_byte``: seconds; None: not known; ``slower``: how
    much longer a byte takes while the guest runs."""
    device = (load.device_bytes or 0) + _AT_LEAST
    if per_byte is None:
        return load.memory_bytes + device, device
    last = min(load.memory_bytes, _PAUSE_S / per_byte)
    written = min((load.dirty_per_s or 0) * per_byte * slower, _MAX_WRITTEN)
    before = (load.memory_bytes - last) / (1 - written)
    return math.ceil(before + last + device), math.ceil(last + device)
