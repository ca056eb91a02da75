# SPDX-License-Identifier: Apache-2.0
"""How many changes of one tenant are carried out: each is a record of the audit, which is kept for good."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Final

from orchestrator.core.errors import Retryable

AT_ONCE: Final = 2000
"""A tenant that has changed nothing for a while: all of a large Terraform plan."""
PER_S: Final = 1.0
"""So many more come back: 86,400 records a day are the most that one tenant leaves."""


@dataclass
class _Left:
    count: float
    at: float


class ChangeAllowance:
    """``at_once`` of each tenant, and ``per_s`` more a second up to that. Of this server: each has its own."""

    def __init__(self, at_once: int = AT_ONCE, per_s: float = PER_S) -> None:
        self._at_once = at_once
        self._per_s = per_s
        self._lock = Lock()
        self._tenants: dict[str, _Left] = {}
        """Those that have not all of it."""

    def take(self, tenant: str, now: float) -> None:
        """One, before anything is changed. :raises Retryable: ``server.too_many_changes``"""
        with self._lock:
            left = self._of(tenant, now)
            if left.count < 1:
                raise Retryable(
                    "server.too_many_changes",
                    f"tenant {tenant} makes more changes than this server records for one",
                    hint=f"wait some seconds; {self._per_s:g} a second are carried out",
                )
            left.count -= 1

    def settle(self, tenant: str, recorded: int, now: float) -> None:
        """What was taken is given back, and as many taken as records were written."""
        with self._lock:
            left = self._of(tenant, now)
            left.count = min(left.count + 1 - recorded, self._at_once)

    def _of(self, tenant: str, now: float) -> _Left:
        left = self._tenants.get(tenant)
        if left is None:
            self._tenants = {
                name: allowance
                for name, allowance in self._tenants.items()
                if self._now(allowance, now) < self._at_once
            }
            left = self._tenants[tenant] = _Left(self._at_once, now)
        left.count, left.at = self._now(left, now), now
        return left

    def _now(self, left: _Left, now: float) -> float:
        return min(left.count + max(0.0, now - left.at) * self._per_s, self._at_once)
