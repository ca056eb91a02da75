# SPDX-License-Identifier: Apache-2.0
"""What a live move is forecast to take, and what it took: kept beside each other, for the forecasts of later ones."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.core.actions.live_move import MovedVm, MoveLoad
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.hosts.host import Host
from orchestrator.core.moves.forecast import bounds_of
from orchestrator.core.moves.live_forecast import LiveForecast, live_forecast
from orchestrator.operations.context import Context
from orchestrator.ports.host import HostLink
from orchestrator.store.database import Store
from orchestrator.store.disk_copies import DiskCopy

_MEASURED = "measured"
"""Input of an operation, of this attempt alone: of one that was taken up again nobody knows for how long it stood."""


def load_of(link: HostLink, host: Host, vm: str) -> MoveLoad | None:
    """None: the host does not tell, and nobody waits for it."""
    try:
        return link.move_load(host, vm)
    except VgpuctlError:
        return None


def forecast_of(
    store: Store, load: MoveLoad, disk_bytes: int, source: str, target: str, max_bytes_per_s: int | None
) -> LiveForecast:
    """By what was measured between the hosts of these names."""
    with store.read() as tx:
        measured = tx.disk_copies.measured_live(source, target)
    return live_forecast(load, disk_bytes, measured, max_bytes_per_s=max_bytes_per_s)


def beside(seconds: float, low_s: float | None, high_s: float | None) -> str:
    """For people."""
    return f"{seconds:.1f} s" + ("" if low_s is None else f", forecast {low_s:.1f} to {high_s:.1f} s")


def note_moved(
    context: Context, load: MoveLoad | None, forecast: LiveForecast | None, moved: MovedVm, seconds: float
) -> str:
    """It waits on the other host to go on. In words."""
    if load is None or forecast is None:
        return f"took {seconds:.1f} s"
    (low_s, high_s), (pause_low_s, pause_high_s) = bounds_of(forecast.takes), bounds_of(forecast.pause)
    context.inputs[_MEASURED] = {
        "size_bytes": context.inputs["copy_bytes"], "seconds": seconds, "low_s": low_s, "high_s": high_s,
        "sent_bytes": moved.sent_bytes, **asdict(load), "pause_low_s": pause_low_s, "pause_high_s": pause_high_s,
        "stopped_at": context.world.clock.monotonic() - moved.paused_ms / 1000,
    }  # fmt: skip
    return f"took {beside(seconds, low_s, high_s)}"


def note_going_on(context: Context) -> str | None:
    """Its guest goes on. In words; it is kept for the forecasts of later moves, unless it was held back."""
    measured = context.inputs.pop(_MEASURED, None)
    if not isinstance(measured, dict):
        return None
    pause_s = context.world.clock.monotonic() - measured.pop("stopped_at")
    move = DiskCopy(
        operation=context.operation_id, source=context.text("source"), target=context.host_name,
        at=context.world.clock.now(), pause_s=pause_s, **measured,
    )  # fmt: skip
    if context.inputs.get("max_bytes_per_s") is None:
        context.write_at_end(lambda tx: tx.disk_copies.add(move))
    return f"stood still for {beside(pause_s, move.pause_low_s, move.pause_high_s)}"
