# SPDX-License-Identifier: Apache-2.0
"""Operations that ended long ago are forgotten, some at a time, findings that no longer hold, and what was answered
under idempotency keys; the audit keeps who did what."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.core.tenancy.request_key import KEPT_S
from orchestrator.ports.clock import Clock
from orchestrator.services.site_time import SiteTime
from orchestrator.store.database import Store

_DAY_S = 86_400.0
_EVERY_S = 3_600.0
_FINDINGS_KEPT_S = 30 * _DAY_S
_CLEANINGS_KEPT_S = 730 * _DAY_S
_AT_ONCE = 500
"""In one transaction, which holds up other writers."""


@dataclass(kw_only=True)
class Retention:
    """``days``: how long after its end an operation can still be shown."""

    store: Store
    clock: Clock
    time: SiteTime
    days: float
    _next: float = field(default=0.0, init=False)

    def round(self) -> int:
        """Forget what is due, at most once an hour; how many that were."""
        if self.clock.monotonic() < self._next:
            return 0
        with self.store.begin() as tx:
            tx.findings.forget(cleared_before=self.time.now() - _FINDINGS_KEPT_S)
            tx.cleanings.forget(cleaned_before=self.time.now() - _CLEANINGS_KEPT_S)
            tx.request_keys.forget(before=self.time.now() - KEPT_S)
        forgotten = 0
        while True:
            with self.store.begin() as tx:
                count = tx.operations.forget(ended_before=self.time.now() - self.days * _DAY_S, most=_AT_ONCE)
            forgotten += count
            if count < _AT_ONCE:
                break
        self._next = self.clock.monotonic() + _EVERY_S
        return forgotten
