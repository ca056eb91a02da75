# SPDX-License-Identifier: Apache-2.0
"""What a provider publishes, kept here: who shows a token whose key is known waits for nobody.

The provider is asked on a thread of its own, once at a time: one that hangs holds none of those that answer requests.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Any, Final, cast

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, KeySetSerialization

from orchestrator.core.errors import Retryable, VgpuctlError
from orchestrator.oidc.provider import Provider
from orchestrator.ports.clock import Clock

log = logging.getLogger(__name__)

UNUSABLE: Final = (
    JoseError, UnsupportedAlgorithm, ValueError, TypeError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip
"""What reading a stranger's keys and tokens raises: of the library, and of what it reads with."""
_NOT_HAD: Final = (VgpuctlError, *UNUSABLE)
_FRESH_S: Final = 3600.0
"""Then they are asked for again, while they go on."""
_KEPT_S: Final = 86400.0
"""So long they go on while the provider is away; one that it has taken back must end some day."""
_AT_MOST_EVERY_S: Final = 30.0
"""Keys change now and then; a forged key id must not make us ask the provider each time."""
_FIRST_AT_MOST_EVERY_S: Final = 5.0
"""While there are none."""
_UNKNOWN_S: Final = 300.0
"""A key id that the provider did not publish is not asked for again."""
_MAX_UNKNOWN: Final = 1024


class PublishedKeys:
    """Of one provider. All times are of the clock that only goes forward."""

    def __init__(self, provider: Provider, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._metadata: dict[str, Any] = {}
        self._published_at = self._asked_at = float("-inf")
        self._asking: Future[None] | None = None
        self._wanted: set[str] = set()
        """Key ids for which the provider is being asked."""
        self._unknown: dict[str, float] = {}
        """Key ids that it did not publish, and when it was asked."""

    def known(self) -> KeySet:
        """:raises Retryable: ``login.unreachable``: there are none"""
        return self._published()[0]

    def metadata(self) -> dict[str, Any]:
        """The discovery document that the keys came with. :raises Retryable: ``login.unreachable``: there is none"""
        return self._published()[1]

    def _published(self) -> tuple[KeySet, dict[str, Any]]:
        with self._lock:
            if self._keys is not None and self._clock.monotonic() - self._published_at <= _KEPT_S:
                return self._keys, self._metadata
        raise Retryable("login.unreachable", "the identity provider does not answer", hint="try again in a moment")

    def awaited(self, key_id: str) -> Future[None] | None:
        """Done when the provider has answered or cannot be asked; None: nothing that it says would tell more.
        ``key_id``: empty where a token names none, which is judged by the one key there is."""
        now = self._clock.monotonic()
        with self._lock:
            known = self._keys is not None and (not key_id or any(key.kid == key_id for key in self._keys))
            wanted = not known and now - self._unknown.get(key_id, float("-inf")) > _UNKNOWN_S
            every = _FIRST_AT_MOST_EVERY_S if self._keys is None else _AT_MOST_EVERY_S
            due = wanted or now - self._published_at > _FRESH_S
            if due and self._asking is None and now - self._asked_at > every:
                self._begin(now)
            if not wanted or self._asking is None:
                return None
            if len(self._wanted) < _MAX_UNKNOWN:
                self._wanted.add(key_id)
            return self._asking

    def _begin(self, now: float) -> None:
        self._asked_at = now
        self._asking = Future()
        self._asking.set_running_or_notify_cancel()  # who no longer waits ends it for nobody else
        threading.Thread(target=self._ask, name="login-keys", daemon=True).start()

    def _ask(self) -> None:
        keys: KeySet | None = None
        metadata: dict[str, Any] = {}
        try:
            metadata = self._provider.metadata()
            where = str(metadata.get("jwks_uri"))
            keys = KeySet.import_key_set(cast(KeySetSerialization, self._provider.get(where)))
        except _NOT_HAD as error:
            log.warning("the identity provider's keys cannot be had: %s", _reason(error))
        finally:
            self._end(keys, metadata)

    def _end(self, keys: KeySet | None, metadata: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if keys is not None:
                self._keys, self._metadata, self._published_at = keys, metadata, now
                kept = {key_id: at for key_id, at in self._unknown.items() if now - at <= _UNKNOWN_S}
                kept |= dict.fromkeys(self._wanted - {str(key.kid) for key in keys}, now)
                self._unknown = dict(list(kept.items())[-_MAX_UNKNOWN:])
            self._wanted.clear()
            done, self._asking = self._asking, None
        if done is not None:
            done.set_result(None)


def _reason(error: Exception) -> str:
    return f"{error.message}: {error.details}" if isinstance(error, VgpuctlError) else str(error)
