# SPDX-License-Identifier: Apache-2.0
"""Which maintenance is meant: by its id, by how that begins, or by what is to be done to it where none is named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.maintenance.maintenance import Maintenance, MaintenanceState
from orchestrator.store.transaction import Transaction

NEWEST: Final = "newest"
"""Stands for the one that was declared last; of a change for the only one that it is possible for."""
Change = Literal["pause", "resume", "cancel"]
_BEGINNING: Final = re.compile("[0-9a-f-]{1,36}", re.ASCII)
_POSSIBLE: Final[Mapping[Change, tuple[frozenset[MaintenanceState], str]]] = {
    "pause": (frozenset({"running"}), "is running"),
    "resume": (frozenset({"paused", "halted"}), "is paused or halted"),
    "cancel": (frozenset({"running", "paused", "halted"}), "can be cancelled"),
}
"""In which states, and what is said of them."""
_HINT: Final = "give the id of the one that you mean: 'vgpuctl maintenance list' shows them"


def known_maintenance(tx: Transaction, name: str) -> Maintenance:
    """``name``: its id, how that begins, or :data:`NEWEST`.

    :raises NotFound: ``maintenance.unknown``; :raises InvalidInput: ``maintenance.ambiguous``: several begin so"""
    if name == NEWEST:
        newest = tx.maintenances.newest()
        if newest is None:
            raise _unknown("no maintenance was ever declared")
        return newest
    matches = tx.maintenances.beginning(name.lower()) if _BEGINNING.fullmatch(name.lower()) else ()
    if not matches:
        raise _unknown(f"no maintenance has the id {name[:40]!a}")
    if len(matches) > 1:
        raise InvalidInput("maintenance.ambiguous", f"ids of several maintenances begin with {name}", hint=_HINT)
    return matches[0]


def maintenance_to(tx: Transaction, change: Change, name: str) -> Maintenance:
    """The one that is to be changed so. Where none is named, no other is taken for one that could as well be meant.

    :raises NotFound: ``maintenance.unknown``; :raises Conflict: ``maintenance.none_such``
    :raises InvalidInput: ``maintenance.ambiguous``: several begin so, or are possible"""
    active = tx.maintenances.active()
    if name != NEWEST or not active:
        return known_maintenance(tx, name)
    states, what = _POSSIBLE[change]
    possible = [its for its in active if its.state in states]
    if not possible:
        raise Conflict("maintenance.none_such", f"no maintenance {what}: {_named(active)}", hint=_HINT)
    if len(possible) > 1:
        raise InvalidInput(
            "maintenance.ambiguous", f"more than one maintenance {what}: {_named(possible)}", hint=_HINT
        )  # fmt: skip
    return possible[0]


def _named(maintenances: Iterable[Maintenance]) -> str:
    return ", ".join(f"{its.title} ({its.id[:8]}) is {its.state}" for its in maintenances)


def _unknown(message: str) -> NotFound:
    return NotFound("maintenance.unknown", message, hint="'vgpuctl maintenance list' shows what was declared")
