# SPDX-License-Identifier: Apache-2.0
"""Sessions that were logged out of, over all controllers: a copy of their cookies opens nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from anyio import to_thread

from orchestrator.api.auth import ASK_AGAIN_S
from orchestrator.store.database import Store
from orchestrator.web.proofs import Session


@dataclass
class EndedSessions:
    """Of another controller they are known as soon as a token's end is. Lives on the event loop."""

    store: Store
    _ids: frozenset[str] = frozenset()
    _added: frozenset[str] = frozenset()
    """Here, since the newest reading began: it may not have them."""
    _read_at: float = field(default=-ASK_AGAIN_S)

    async def has(self, session: Session) -> bool:
        """Raises as the database is away."""
        before = self._read_at
        if time.monotonic() - before >= ASK_AGAIN_S:
            self._read_at = began = time.monotonic()
            self._added = frozenset()
            try:
                stored = await to_thread.run_sync(self._read)
            except BaseException:
                self._read_at = before
                raise
            if self._read_at == began:
                self._ids = stored | self._added
        return session.id in self._ids

    async def add(self, session: Session) -> None:
        """Raises as the database is away."""
        await to_thread.run_sync(self._write, session)
        self._ids |= {session.id}
        self._added |= {session.id}

    def _read(self) -> frozenset[str]:
        with self.store.read() as tx:
            return tx.ended_web_sessions.ids()

    def _write(self, session: Session) -> None:
        with self.store.begin() as tx:
            tx.ended_web_sessions.forget_over(time.time())
            tx.ended_web_sessions.add(session.id, session.proof.digest, session.end)
