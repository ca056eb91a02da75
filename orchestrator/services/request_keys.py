# SPDX-License-Identifier: Apache-2.0
"""Requests under an idempotency key: asked again they get the answer that they got."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace

from orchestrator.core.tenancy.request_key import MAX_ANSWER, MAX_KEYS, StoredRequest, check_key, check_same
from orchestrator.ports.clock import Clock
from orchestrator.store.database import Store


@dataclass(frozen=True, kw_only=True)
class RequestKeyService:
    """``secret`` makes fingerprints: bodies may hold passwords, and a plain hash of one can be guessed at."""

    store: Store
    clock: Clock
    secret: bytes

    def begin(self, actor: str, key: str, *request: bytes) -> StoredRequest:
        """What is kept of the same ``request``; without ``status`` when it has yet to be carried out.

        One that was begun and never answered is carried out again: every request of the API, sent again,
        attaches to what the first one began.

        :raises InvalidInput: ``request.key_invalid``; :raises Conflict: ``request.key_reused``
        """
        check_key(key)
        fingerprint = self._fingerprint(request)
        with self.store.begin() as tx:
            tx.request_keys.forget_more(actor, MAX_KEYS)
            kept = tx.request_keys.find(actor, key)
            if kept is None:
                kept = StoredRequest(
                    actor=actor, key=key, fingerprint=fingerprint, at=tx.time.no_earlier(self.clock.now())
                )
                tx.request_keys.put(kept)
        check_same(kept, fingerprint)
        return kept

    def finish(self, kept: StoredRequest, status: int, answer: str) -> None:
        """Keep what is answered from now on, where it is not too long."""
        if len(answer.encode()) <= MAX_ANSWER:
            with self.store.begin() as tx:
                tx.request_keys.put(replace(kept, status=status, answer=answer))

    def forget(self, kept: StoredRequest) -> None:
        """It was refused and changed nothing, so its key is free again."""
        with self.store.begin() as tx:
            tx.request_keys.remove(kept.actor, kept.key)

    def _fingerprint(self, request: tuple[bytes, ...]) -> str:
        parts = b"".join(len(part).to_bytes(8, "big") + part for part in request)
        return hmac.new(self.secret, parts, hashlib.sha256).hexdigest()
