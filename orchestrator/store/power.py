# SPDX-License-Identifier: Apache-2.0
"""Limits of power that GPUs can have, have and may have, and budgets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

from sqlalchemy import bindparam, select, update

from orchestrator.core.gpu.power import Budget
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.store.meta import Meta
from orchestrator.store.statements import Statements
from orchestrator.store.tables import gpus

_TURN: Final = "power_pass"
_BUDGETS: Final = "power_budgets"
_ALL: Final = (
    select(gpus.c.host, gpus.c.address, gpus.c.power)
    .where(gpus.c.power.is_not(None))
    .order_by(gpus.c.host, gpus.c.address)
)
_OF_HOST: Final = select(gpus.c.address, gpus.c.power).where(gpus.c.host == bindparam("its_host"))
_PUT: Final = update(gpus).where(gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_address"))


@dataclass(frozen=True)
class KnownPower:
    """Of a managed GPU whose driver has told of limits. In watts."""

    least: int
    default: int
    most: int
    now: int | None
    """As last observed; None: its driver did not have it, as while a VM has all of it."""
    cap: int | None = None
    """That an operator gave it."""
    granted: int | None = None
    """The highest that it may have by what was sent to it; None: it was sent none."""


Known = dict[tuple[str, str], KnownPower]
"""By host and PCI address."""


def power_seen(gpu: GpuSnapshot, before: KnownPower | None = None) -> KnownPower | None:
    """After an observation; ``before``: what was known. None: its driver tells none, or such as none can be: a limit of
    0 W is sent as the GPU's own, and a lowest one above all others would have every budget refused."""
    least, default, most = gpu.power_min_watts, gpu.power_default_watts, gpu.power_max_watts
    if least is None or default is None or most is None or not 0 < least <= default <= most:
        return None
    cap, granted = (None, None) if before is None else (before.cap, before.granted)
    return KnownPower(least, default, most, gpu.power_limit_watts, cap, granted)


def power_values(power: KnownPower | None) -> list[Any] | None:
    """As it is stored."""
    return None if power is None else list(astuple(power))


class Power:
    """It goes with the card when that is moved (cards.py)."""

    def __init__(self, db: Statements) -> None:
        self._db, self._meta = db, Meta(db)

    def learn(self, host: str, seen: Iterable[GpuSnapshot]) -> None:
        """Of an observation."""
        before = self.of_host(host)
        after = {gpu.address: power_seen(gpu, before[gpu.address]) for gpu in seen if gpu.address in before}
        self.put({(host, gpu): power for gpu, power in after.items() if power not in {None, before[gpu]}})

    def of_host(self, host: str) -> dict[str, KnownPower | None]:
        """By PCI address of its managed GPUs. None: its driver has told none."""
        rows = self._db.execute(_OF_HOST, {"its_host": host})
        return {row.address: None if row.power is None else KnownPower(*row.power) for row in rows}

    def all(self) -> Known:
        return {(row.host, row.address): KnownPower(*row.power) for row in self._db.execute(_ALL)}

    def put(self, known: Mapping[tuple[str, str], KnownPower]) -> None:
        rows = [
            {"its_host": host, "its_address": gpu, "power": power_values(power)} for (host, gpu), power in known.items()
        ]
        if rows:
            self._db.execute(_PUT, rows)

    def budgets(self) -> dict[Budget, int]:
        """In watts."""
        stored = json.loads(self._meta.get(_BUDGETS) or "[]")
        return {Budget(scope, name): watts for scope, name, watts in stored}

    def put_budget(self, budget: Budget, watts: int | None) -> None:
        """None: there is none any more."""
        budgets = {known: each for known, each in self.budgets().items() if known != budget}
        if watts is not None:
            budgets[budget] = watts
        self._meta.put(
            _BUDGETS, json.dumps([(known.scope, known.name, each) for known, each in sorted(budgets.items())])
        )

    def begin_pass(self) -> int:
        """Its number, higher than all before: what older ones send is refused by hosts that have heard of it."""
        number = self._meta.number(_TURN) + 1
        self._meta.put(_TURN, str(number))
        return number

    def is_last_pass(self, number: int) -> bool:
        return self._meta.number(_TURN) == number
