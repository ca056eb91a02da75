# SPDX-License-Identifier: Apache-2.0
"""How long a disk takes from one host to another, by copies that were measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_UNSURE: Final = 0.3
"""How far a single copy may be from the next one; of several it is divided by the root of their number."""


class MeasuredCopy(NamedTuple):
    """A disk that was copied, and in how long."""

    size_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """In seconds."""

    low_s: float
    high_s: float


def bounds_of(forecast: Forecast | None) -> tuple[float, float] | tuple[None, None]:
    """Both in seconds; None: nothing is forecast."""
    return (None, None) if forecast is None else (forecast.low_s, forecast.high_s)


def copy_time(
    size_bytes: int, measured: Sequence[MeasuredCopy], *, max_bytes_per_s: int | None = None
) -> Forecast | None:
    """None: nothing was measured. ``measured``: between the same hosts, or of others where nothing was.

    A copy is some time at rest and some for each byte, as fits all that were measured best; how far they were from that
    is how far this one may be. From four copies on its middle is within a fifth in nine cases of ten."""
    copies = [copy for copy in measured if copy.size_bytes > 0 and copy.seconds > 0]
    if not copies:
        return None
    at_rest, per_byte = _fitted(copies)
    fits = [at_rest + per_byte * copy.size_bytes for copy in copies]
    ratios = [copy.seconds / fit for copy, fit in zip(copies, fits, strict=True)]
    expected, unsure = at_rest + per_byte * size_bytes, 1 + _UNSURE / math.sqrt(len(copies))
    least = size_bytes / max_bytes_per_s if max_bytes_per_s else 0.0
    return Forecast(
        low_s=max(least, expected * min(ratios) / unsure), high_s=max(least, expected * max(ratios) * unsure)
    )


def per_byte_of(measured: Sequence[MeasuredCopy]) -> float | None:
    """Seconds for a byte; None: nothing was measured."""
    copies = [copy for copy in measured if copy.size_bytes > 0 and copy.seconds > 0]
    return _fitted(copies)[1] if copies else None


def _fitted(copies: Sequence[MeasuredCopy]) -> tuple[float, float]:
    """Seconds at rest, and for each byte: least squares of relative errors; neither is below nothing."""
    weights = [1 / copy.seconds**2 for copy in copies]
    whole = sum(weights)
    size = sum(weight * copy.size_bytes for weight, copy in zip(weights, copies, strict=True)) / whole
    time = sum(weight * copy.seconds for weight, copy in zip(weights, copies, strict=True)) / whole
    spread = sum(weight * (copy.size_bytes - size) ** 2 for weight, copy in zip(weights, copies, strict=True))
    both = sum(
        weight * (copy.size_bytes - size) * (copy.seconds - time) for weight, copy in zip(weights, copies, strict=True)
    )
    per_byte = both / spread if spread > 0 else 0.0
    at_rest = time - per_byte * size
    if per_byte <= 0 or at_rest < 0:
        return 0.0, time / size
    return at_rest, per_byte
