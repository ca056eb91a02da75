# SPDX-License-Identifier: Apache-2.0
"""What is remembered of GPUs' health, and whether rules may close them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import bindparam, func, select, update

from orchestrator.core.gpu.health_states import Breaker, GpuHealth
from orchestrator.store.events import Events
from orchestrator.store.meta import Meta
from orchestrator.store.rows import health_of
from orchestrator.store.statements import Statements
from orchestrator.store.tables import gpus
from orchestrator.store.usage import Usage

_BREAKER: Final = "health_breaker"
_QUARANTINES: Final = "kept_quarantines"
MAX_QUARANTINES: Final = 1000
"""Of cards that are in no host of ours; the oldest go first."""
_PUT: Final = update(gpus).where(gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_address"))
_ALL: Final = (
    select(gpus.c.host, gpus.c.address, gpus.c.model, gpus.c.health)
    .where(gpus.c.health.is_not(None))
    .order_by(gpus.c.host, gpus.c.address)
)
_MODEL: Final = select(gpus.c.model).where(
    gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_address")
)
_CARDS: Final = select(gpus.c.address, gpus.c.uuid, gpus.c.health).where(
    gpus.c.host == bindparam("its_host"), gpus.c.uuid.is_not(None)
)
_MODELS: Final = select(gpus.c.model, func.count().label("stored")).group_by(gpus.c.model)


class GpuHealths:
    """Of managed GPUs; it goes with the card when that is moved (cards.py)."""

    def __init__(self, db: Statements, usage: Usage, events: Events) -> None:
        self._db, self._usage, self._events = db, usage, events
        self._meta = Meta(db)

    def put(self, host: str, gpu: str, health: GpuHealth | None, *, changed: bool, function: str | None = None) -> None:
        """``changed``: its state has, so placement and whoever watches are told; the state of that ``function`` of the
        GPU, where one is named."""
        stored = None if health is None else asdict(health)
        self._db.execute(_PUT, {"its_host": host, "its_address": gpu, "health": stored})
        self._usage.touch(host)
        if changed:
            about = health if health is None or function is None else dict(health.functions).get(function)
            state = "healthy" if about is None else about.state
            self._events.note("gpu", f"{host}/{function or gpu}", "health", host=host, state=state)

    def keep_quarantines(self, host: str) -> None:
        """Of a host whose GPUs, or some, are about to be forgotten: a person's word holds for the card, wherever it
        comes back."""
        rows = self._db.execute(_CARDS, {"its_host": host})
        quarantined = {row.uuid: row.health for row in rows if row.health and row.health["state"] == "quarantined"}
        if quarantined:
            kept = list((self._quarantines() | quarantined).items())
            self._meta.put(_QUARANTINES, json.dumps(dict(kept[-MAX_QUARANTINES:])))

    def recall_quarantines(self, host: str) -> None:
        """Of its cards, as far as it is known which they are."""
        kept = self._quarantines()
        if not kept:
            return
        for row in self._db.execute(_CARDS, {"its_host": host}).all():
            health = kept.pop(row.uuid, None)
            if health is not None and row.health is None:
                self.put(host, row.address, health_of(health), changed=True)
        self._meta.put(_QUARANTINES, json.dumps(kept))

    def _quarantines(self) -> dict[str, dict[str, Any]]:
        """By UUID of the card, as health is stored."""
        stored: dict[str, dict[str, Any]] = json.loads(self._meta.get(_QUARANTINES) or "{}")
        return stored

    def falls(self, since: float) -> Counter[str | None]:
        """How many GPUs became unfit since then, by model."""
        return Counter(row.model for row in self._db.execute(_ALL) if max(row.health["falls"], default=0.0) > since)

    def model(self, host: str, gpu: str) -> str | None:
        """As its driver has said once; None: never."""
        model: str | None = self._db.execute(_MODEL, {"its_host": host, "its_address": gpu}).scalar_one_or_none()
        return model

    def models(self) -> Counter[str | None]:
        """How many GPUs there are, by model; None: never seen."""
        return Counter({row.model: row.stored for row in self._db.execute(_MODELS)})

    def all(self) -> tuple[tuple[str, str, GpuHealth], ...]:
        """(host, address, health) of those of which anything is remembered."""
        return tuple((row.host, row.address, health_of(row.health)) for row in self._db.execute(_ALL))

    def breaker(self) -> Breaker:
        return Breaker(**json.loads(self._meta.get(_BREAKER) or "{}"))

    def put_breaker(self, breaker: Breaker) -> None:
        self._meta.put(_BREAKER, json.dumps(asdict(breaker)))
