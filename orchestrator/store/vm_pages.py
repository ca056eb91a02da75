# SPDX-License-Identifier: Apache-2.0
"""VMs in the order of a column, a page at a time: an index of :data:`tables.VM_ORDERS` leads to it among many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Unpack

from sqlalchemy import Column, ColumnElement, func, select, tuple_

from orchestrator.core.vms.vm import Vm
from orchestrator.store.records import VmFilter
from orchestrator.store.rows import VM_COLUMNS, vm_of
from orchestrator.store.statements import Statements
from orchestrator.store.tables import vms

PageKey = tuple[object, str, str]
"""What the last VM of a page is sorted by (its profile in lower case), its tenant and its name."""

_ROWS: Final = select(*VM_COLUMNS)
_KEY: Final = (vms.c.tenant, vms.c.name)


class VmPages:
    """Lists of VMs."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def page(
        self,
        sort: str = "tenant",
        after: PageKey | None = None,
        most: int | None = None,
        **only: Unpack[VmFilter],
    ) -> tuple[Vm, ...]:
        """By that, then by tenant and name, nothing before something; ``-``: all the other way round. ``after``: of
        the page before."""
        name, backwards = sort.removeprefix("-"), sort.startswith("-")
        column = vms.c["profile_lower" if name == "profile" else name]
        by = [part.desc() if backwards else part.asc() for part in dict.fromkeys((column, *_KEY))]
        page: list[Vm] = []
        for half in _halves(column, after, backwards=backwards):
            query = _ROWS.where(*_matching(only), *half).order_by(*by)
            page += map(vm_of, self._db.execute(query.limit(None if most is None else most - len(page))))
            if len(page) == most:
                break
        return tuple(page)

    def ids(self, tenant: str, profile: str) -> tuple[str, ...]:
        """Of the tenant's VMs of that profile, by name."""
        query = select(vms.c.id).where(*_matching({"tenants": (tenant,), "profile": profile})).order_by(vms.c.name)
        return tuple(self._db.execute(query).scalars())

    def how_many(self, **only: Unpack[VmFilter]) -> int:
        """Those that :meth:`page` would have without a limit."""
        query = select(func.count()).select_from(vms).where(*_matching(only))
        return int(self._db.execute(query).scalar_one())


def _halves(
    column: Column[Any], after: PageKey | None, *, backwards: bool
) -> Iterator[tuple[ColumnElement[bool], ...]]:
    """What must hold of those behind ``after``. Where nothing may stand in the column, that is a half of its own, as
    no index has it first on SQLite and on PostgreSQL alike."""
    if not column.nullable:
        yield () if after is None else (_behind(column, after, backwards=backwards),)
        return
    for empty in (False, True) if backwards else (True, False):
        half = column.is_(None) if empty else column.is_not(None)
        if after is None or (after[0] is None) == empty:
            yield (half,) if after is None else (half, _behind(column, after, backwards=backwards))
            after = None


def _behind(column: Column[Any], after: PageKey, *, backwards: bool) -> ColumnElement[bool]:
    parts = dict(zip((column, *_KEY), after, strict=True))
    if after[0] is None:
        del parts[column]
    row, last = tuple_(*parts), tuple(parts.values())
    return row < last if backwards else row > last


def _matching(only: VmFilter) -> Iterator[ColumnElement[bool]]:
    """What must hold of each; a place that is held for one (places.py) is none."""
    yield vms.c.name != vms.c.id
    if (tenants := only.get("tenants")) is not None:
        yield vms.c.tenant.in_(tenants)
    if (state := only.get("state")) is not None:
        yield vms.c.state == state
    if (host := only.get("host")) is not None:
        yield vms.c.host == host
    if (profile := only.get("profile")) is not None:
        yield vms.c.profile_lower == profile.casefold()
