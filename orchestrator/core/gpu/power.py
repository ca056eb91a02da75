# SPDX-License-Identifier: Apache-2.0
"""Limits of power of GPUs under budgets: who keeps to what next. Whole watts; no clock.

What a GPU *counts* is the highest limit that it may have now. Limits are lowered first; what was confirmed counts less
from then on, and only what budgets have left of it is given to others: whatever is lost or crashes between, no budget's
GPUs may take more together than it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["host", "rack", "site"]
SCOPES: Final[tuple[Scope, ...]] = ("host", "rack", "site")
"""From the inside out: each lies within the next."""
BUSY_SHARE: Final = 0.9
"""Of its limit: a GPU that draws more would take more."""
_HEADROOM: Final = 1.15
_HEADROOM_W: Final = 10
BAND_SHARE: Final = 0.05
"""Of its highest limit: what differs by less is left as it is."""


@dataclass(frozen=True, order=True)
class Budget:
    scope: Scope
    name: str
    """Of the host, of the rack (label ``rack``); empty: of the site."""


SITE: Final = Budget("site", "")


@dataclass(frozen=True, kw_only=True)
class GpuPower:
    """One GPU. ``key``: host and PCI address."""

    key: tuple[str, str]
    budgets: tuple[Budget, ...] = ()
    """That it lies within."""
    least: int
    """The lowest limit that its driver takes."""
    most: int
    """The highest that it may have: its driver's default, or its cap."""
    counts: int
    drawn: float | None = None
    """Now; None: not known, so it may be at work."""
    fixed: bool = False
    """Its limit cannot be changed now: its host does not answer, or a VM has all of it."""

    @property
    def band(self) -> int:
        return max(1, int(BAND_SHARE * self.most))

    @property
    def lowest(self) -> int:
        return self.counts if self.fixed else min(self.least, self.most)

    @property
    def wanted(self) -> int:
        """What it would take, with some headroom."""
        if self.fixed:
            return self.counts
        if self.drawn is None or self.drawn >= BUSY_SHARE * self.counts:
            return self.most
        return max(self.lowest, min(self.most, int(self.drawn * _HEADROOM) + _HEADROOM_W))


@dataclass(frozen=True)
class PowerPlan:
    lower: Mapping[tuple[str, str], int]
    """To be done first, and then planned anew."""
    higher: Mapping[tuple[str, str], int]
    """Budgets have left so much already."""


Watts = dict[tuple[str, str], int]


def plan(gpus: Sequence[GpuPower], budgets: Mapping[Budget, int]) -> PowerPlan:
    """``budgets``: in watts. GPUs that work share fairly what there is; the others lend, down to the lowest limit."""
    members = within(gpus, budgets)
    fair = _filled(gpus, members, budgets, {gpu.key: gpu.lowest for gpu in gpus}, {gpu.key: gpu.wanted for gpu in gpus})
    free = {budget: watts - sum(gpu.counts for gpu in members[budget]) for budget, watts in budgets.items()}
    lower = _lowered(gpus, fair, free)
    ceilings = {gpu.key: max(fair[gpu.key], gpu.lowest if gpu.fixed else gpu.most) for gpu in gpus}
    spare = _filled(gpus, members, budgets, fair, ceilings)
    return PowerPlan(lower, _raised(gpus, fair, spare, free))


def lacking(gpus: Iterable[GpuPower], watts: int) -> int:
    """How many watts such a budget would lack even with all of them at their lowest; 0: none."""
    return max(0, sum(gpu.least if not gpu.fixed else gpu.counts for gpu in gpus) - watts)


def within(gpus: Iterable[GpuPower], budgets: Iterable[Budget]) -> dict[Budget, list[GpuPower]]:
    """Whose GPUs lie within which; ``budgets`` has all that they name."""
    members: dict[Budget, list[GpuPower]] = {budget: [] for budget in budgets}
    for gpu in gpus:
        for budget in gpu.budgets:
            members[budget].append(gpu)
    return members


def _filled(
    gpus: Iterable[GpuPower],
    within: Mapping[Budget, Sequence[GpuPower]],
    budgets: Mapping[Budget, int],
    lows: Mapping[tuple[str, str], int],
    tops: Mapping[tuple[str, str], int],
) -> Watts:
    """To one level under each budget, no GPU above its top or below its low (max-min fair, as water finds it). As
    budgets lie within each other, the inner ones' levels hold within the outer ones."""
    watts = {gpu.key: tops[gpu.key] for gpu in gpus}
    for budget in sorted(budgets, key=lambda budget: SCOPES.index(budget.scope)):
        keys = [gpu.key for gpu in within[budget]]
        level = _level(budgets[budget], [(lows[key], watts[key]) for key in keys])
        for key in keys:
            watts[key] = max(lows[key], min(watts[key], level))
    return watts


def _level(watts: int, spans: Sequence[tuple[int, int]]) -> int:
    """The highest at which all of them fit, each between its two bounds; 0: they do not even at their lowest."""
    low, high = 0, max((top for _, top in spans), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(least, min(top, middle)) for least, top in spans) <= watts:
            low = middle
        else:
            high = middle - 1
    return low


def _lowered(gpus: Sequence[GpuPower], fair: Mapping[tuple[str, str], int], free: Mapping[Budget, int]) -> Watts:
    """As few as can be, where most is left: a budget that is exceeded, or that a GPU lacks which works, gets it."""
    over = {budget for budget, watts in free.items() if watts < 0}
    lacks = {budget: -watts for budget, watts in free.items()}
    hungry = dict.fromkeys(free, False)
    for gpu in gpus:
        missing = fair[gpu.key] - gpu.counts
        if missing > gpu.band:
            for budget in gpu.budgets:
                lacks[budget] += missing
                hungry[budget] = True
    lower: Watts = {}
    for gpu in sorted(gpus, key=lambda gpu: (fair[gpu.key] - gpu.counts, gpu.key)):
        excess = gpu.counts - fair[gpu.key]
        above = gpu.counts > gpu.most and not gpu.fixed  # it has been given a lower cap
        needed = any(
            lacks[budget] > 0 and (budget in over or (hungry[budget] and excess > gpu.band)) for budget in gpu.budgets
        )
        if excess > 0 and (needed or above):
            lower[gpu.key] = fair[gpu.key] if needed else gpu.most
            for budget in gpu.budgets:
                lacks[budget] -= gpu.counts - lower[gpu.key]
    return lower


def _raised(
    gpus: Sequence[GpuPower],
    fair: Mapping[tuple[str, str], int],
    spare: Mapping[tuple[str, str], int],
    free: Mapping[Budget, int],
) -> Watts:
    """Those that lack most first; what is left then raises the others, so that they begin to work at once."""
    left, higher = dict(free), dict[tuple[str, str], int]()
    for wanted, band in ((fair, 1), (spare, 2)):
        for gpu in sorted(gpus, key=lambda gpu: (gpu.counts, gpu.key)):
            now = higher.get(gpu.key, gpu.counts)
            more = min(wanted[gpu.key] - now, *(left[budget] for budget in gpu.budgets), gpu.most - now)
            if not gpu.fixed and (more > band * gpu.band or (more > 0 and not gpu.budgets)):
                higher[gpu.key] = now + more
                for budget in gpu.budgets:
                    left[budget] -= more
    return higher
