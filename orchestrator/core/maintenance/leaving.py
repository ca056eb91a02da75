# SPDX-License-Identifier: Apache-2.0
"""When VMs leave their host for maintenance, as their tenants' policies say. Pure.

A host is taken out when all of its VMs may be stopped together, so that none is stopped while another is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import InvalidInput

_FORM: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_DAY_MIN: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """From the first minute to before the second one; over midnight where the first is the later one."""

    begin_min: int
    end_min: int
    """Minutes of a day of UTC."""

    def __str__(self) -> str:
        begin, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (self.begin_min, self.end_min))
        return f"{begin}-{end}"

    def is_open(self, now: float) -> bool:
        """``now``: seconds since 1970, which began at midnight."""
        return (_minute(now) - self.begin_min) % _DAY_MIN < (self.end_min - self.begin_min) % _DAY_MIN

    def opens_at(self, now: float) -> float | None:
        """When it opens next; None: it is open."""
        if self.is_open(now):
            return None
        return float((now // 60 + (self.begin_min - _minute(now)) % _DAY_MIN) * 60)


def open_together_at(windows: Sequence[DailyWindow], now: float) -> float | None:
    """``now``, or when all of them are open next; None: they never are. A time in which all are begins with one."""
    begins = (float((now // 60 + (window.begin_min - _minute(now)) % _DAY_MIN) * 60) for window in windows)
    moments = (at for at in (now, *begins) if at >= now and all(window.is_open(at) for window in windows))
    return min(moments, default=None)


def _minute(now: float) -> int:
    return int(now // 60) % _DAY_MIN


def parse_window(text: str) -> DailyWindow:
    """``22:00-05:00``.

    :raises InvalidInput: ``maintenance.window_invalid``
    """
    match = _FORM.fullmatch(text)
    begin, end = (0, 0) if match is None else (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4]))
    if begin == end:
        raise InvalidInput(
            "maintenance.window_invalid",
            f"{text[:40]!a} is no part of a day",
            hint="give two different times of day in UTC: 22:00-05:00",
        )
    return DailyWindow(begin, end)


STOP: Final = "stop"
WAIT: Final = "wait"
CHOSEN: Final = "chosen"
"""Of a VM whose user has said from when on it may be stopped."""


def parse_leave(text: str) -> DailyWindow | None:
    """``stop``: when the turn of their host comes; ``wait``: their users stop them; ``22:00-05:00``: as ``stop``, in
    that part of each day, in UTC. None: it is no window.

    :raises InvalidInput: ``policy.invalid``
    """
    if text in {STOP, WAIT}:
        return None
    try:
        return parse_window(text)
    except InvalidInput as error:
        raise InvalidInput(
            "policy.invalid",
            f"maintenance cannot be {text[:40]!a}",
            hint="stop, wait, or a part of each day in UTC like 22:00-05:00",
        ) from error


@dataclass(frozen=True, kw_only=True)
class AwaitedTenant:
    """A tenant whose VMs keep their host from being taken out now."""

    tenant: str
    """Whose it is."""
    vms: int
    """Of the tenant on the host that are not at rest."""
    policy: str
    """wait: its users stop them; 22:00-05:00: they are stopped in that part of each day; chosen: from ``opens_at``."""
    opens_at: float | None
    """When its window opens next; None: it is open, or its users stop the VMs."""


@dataclass(frozen=True, kw_only=True)
class AwaitedTenants:
    """What a host waits for before it is taken out."""

    tenants: tuple[AwaitedTenant, ...]
    opens_at: float | None = None
    """When all windows are open together; None: no window is waited for, or they never are."""
    no_common_window: bool = False
    """The windows of the tenants and of the maintenance are never open together."""


def wait_of(
    vms: Mapping[str, int], policies: Mapping[str, str], own: DailyWindow | None, now: float
) -> AwaitedTenants | None:
    """``vms``: of each tenant on the host, those that are not at rest. ``policies``: of tenants, else they are stopped.
    ``own``: its own window. None: nothing of the tenants is waited for."""
    policy_of = {tenant: policies.get(tenant, STOP) for tenant in sorted(vms) if vms[tenant]}
    windows = {tenant: window for tenant, text in policy_of.items() if (window := parse_leave(text)) is not None}
    together = [*windows.values(), *([own] if own is not None else [])]
    opens = open_together_at(together, now) if windows else now
    closed = [tenant for tenant, window in windows.items() if not window.is_open(now)]
    awaited = {tenant for tenant, text in policy_of.items() if text == WAIT} | (windows.keys() if closed else set())
    if not awaited and opens is not None:
        return None
    return AwaitedTenants(
        tenants=tuple(
            AwaitedTenant(
                tenant=tenant,
                vms=vms[tenant],
                policy=text,
                opens_at=windows[tenant].opens_at(now) if tenant in windows else None,
            )
            for tenant, text in policy_of.items()
            if tenant in awaited or (opens is None and tenant in windows)
        ),
        opens_at=opens if opens is not None and opens > now else None,
        no_common_window=opens is None,
    )


def show_tenants(tenants: Sequence[AwaitedTenant]) -> str:
    """``red (22:00-02:00) and blue (04:00-06:00)``"""
    return " and ".join(f"{tenant.tenant} ({tenant.policy})" for tenant in tenants)
