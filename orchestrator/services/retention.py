# SPDX-License-Identifier: Apache-2.0
"""Operations that ended long ago are forgotten, some at a time; the audit keeps who did what."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.ports.clock import Clock
from orchestrator.ports.store.transaction import Store

_DAY_S = 86_400.0
_EVERY_S = 3_600.0
_AT_ONCE = 500
"""In one transaction, which holds up other writers."""


@dataclass(kw_only=True)
class Retention:
    """``days``: how long after its end an operation can still be shown."""

    store: Store
    clock: Clock
    days: float
    _next: float = field(default=0.0, init=False)

    def round(self) -> int:
        """Forget what is due, at most once an hour; how many that were."""
        if self.clock.monotonic() < self._next:
            return 0
        forgotten = 0
        while True:
            with self.store.begin() as tx:
                count = tx.operations.forget(ended_before=self.clock.now() - self.days * _DAY_S, most=_AT_ONCE)
            forgotten += count
            if count < _AT_ONCE:
                break
        self._next = self.clock.monotonic() + _EVERY_S
        return forgotten
