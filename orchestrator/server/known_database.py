# SPDX-License-Identifier: Apache-2.0
"""Which database a state directory knows: one that is older than what was seen of it was restored."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orchestrator.adapters.state.directory import KnownCount, KnownRecord, NewestRecord
from orchestrator.core.errors import Conflict
from orchestrator.store.database import Store

_HINT: Final = "'vgpuctl server settle-restored' lets the hosts obey it and stops what had not ended"


class KnownDatabase:
    """Both sides count when a server begins, and again when something was written since."""

    def __init__(self, state: Path, store: Store) -> None:
        """A server begins. :raises Conflict: ``store.restored``"""
        self._known, self._store = KnownCount(state), store
        self._file, self._settled = NewestRecord(state), store.settled()
        self._record = self._file.read()
        if self._record is not None and self._record.settled < self._settled:
            self._record = None  # whatever it has forgotten since, a person has settled that
        if self._has_forgotten():
            raise Conflict(
                "store.restored",
                "the database was restored: it has forgotten what this server had written last",
                hint=_HINT,
            )
        self._count(self._newest())
        store.when_recorded = self._note

    def round(self) -> None:
        """What was written since the last round is seen from now on. :raises Conflict: ``store.restored``"""
        newest = self._newest()
        if newest != self._written:
            self._count(newest)

    def check(self, *, rolled_back: bool) -> None:
        """``rolled_back``: that was noticed otherwise.

        :raises Conflict: ``store.restored``, ``store.schema_changed``
        """
        expected = self._counted  # before asking: a round may count while the answer is on its way
        if rolled_back or self._store.counted() < expected or self._has_forgotten():
            raise Conflict(
                "store.restored",
                "the database was restored while the server ran",
                hint=_HINT,
            )

    def _note(self, sequence: int, proof: str) -> None:
        """Commits may come out of order; the newest counts."""
        record = KnownRecord(self._settled, sequence, proof)
        if self._record is None or sequence > self._record.sequence:
            self._record = record
        self._file.write(record)

    def _has_forgotten(self) -> bool:
        """What a server loses are its last commits, so the newest is asked for alone."""
        known = self._record
        if known is None:
            return False
        with self._store.read() as tx:
            proofs = tx.audit.proofs([known.sequence])
        return proofs.get(known.sequence) != known.proof

    def _count(self, newest: int) -> None:
        self._counted = self._store.count(self._known.read())
        self._known.write(self._counted)
        self._written = newest

    def _newest(self) -> int:
        """Of the audit, which has a record of all that anybody has asked for."""
        with self._store.read() as tx:
            return max((record.sequence for record in tx.audit.newest(limit=1)), default=0)
