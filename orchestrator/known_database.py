# SPDX-License-Identifier: Apache-2.0
"""Which database a state directory knows: one that is older than what was seen of it was restored."""

from __future__ import annotations

from pathlib import Path

from orchestrator.adapters.state.own import KnownCount
from orchestrator.adapters.store.database import SqlStore
from orchestrator.core.errors import Conflict


class KnownDatabase:
    """Both sides count when a server begins, and again when something was written since."""

    def __init__(self, state: Path, store: SqlStore) -> None:
        """A server begins. :raises Conflict: ``store.restored``"""
        self._known, self._store = KnownCount(state), store
        self._count(self._newest())

    def round(self) -> None:
        """What was written since the last round is seen from now on. :raises Conflict: ``store.restored``"""
        newest = self._newest()
        if newest != self._written:
            self._count(newest)

    def check(self, *, rolled_back: bool) -> None:
        """``rolled_back``: that was noticed otherwise.

        :raises Conflict: ``store.restored``, ``store.schema_changed``
        """
        if rolled_back or self._store.counted() < self._counted:
            raise Conflict(
                "store.restored",
                "the database was restored while the server ran",
                hint="'vgpuctl server settle-restored' lets the hosts obey it and stops what had not ended",
            )

    def _count(self, newest: int) -> None:
        self._counted = self._store.count(self._known.read())
        self._known.write(self._counted)
        self._written = newest

    def _newest(self) -> int:
        """Of the audit, which has a record of all that anybody has asked for."""
        with self._store.read() as tx:
            return max((one.sequence for one in tx.audit.newest(limit=1)), default=0)
