# SPDX-License-Identifier: Apache-2.0
"""VMs and hosts in the order of a column, a page at a time. Of VMs an index of :data:`tables.VM_ORDERS` leads to it
among many; hosts are few enough to be gone through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Unpack

from sqlalchemy import Column, ColumnElement, Select, func, or_, select, tuple_

from orchestrator.core.hosts.host import HostCondition
from orchestrator.core.labels import Selector
from orchestrator.core.vms.vm import Vm
from orchestrator.store.records import VmFilter
from orchestrator.store.rows import IS_PLACE, VM_COLUMNS, vm_of
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import gpus, hosts, vms

PageKey = tuple[object, ...]
"""What the last of a page is sorted by (a VM's profile in lower case), then a VM's tenant, and the name."""

_ROWS: Final = select(*VM_COLUMNS)
_VM_KEY: Final = (vms.c.tenant, vms.c.name)


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
        name = sort.removeprefix("-")
        column = vms.c["profile_lower" if name == "profile" else name]
        query = _ROWS.where(~IS_PLACE, *_matching(only))
        return tuple(map(vm_of, _page(self._db, query, (column, *_VM_KEY), after, most, backwards=sort != name)))

    def ids(self, tenant: str, profile: str) -> tuple[str, ...]:
        """Of the tenant's VMs of that profile, by name."""
        its = _matching({"tenants": (tenant,), "profile": profile})
        query = select(vms.c.id).where(~IS_PLACE, *its).order_by(vms.c.name)
        return tuple(self._db.execute(query).scalars())

    def how_many(self, **only: Unpack[VmFilter]) -> int:
        """Those that :meth:`page` would have without a limit. Places are counted by themselves, as an index alone does
        not tell them from VMs."""
        query = select(func.count()).select_from(vms).where(*_matching(only))
        return int(self._db.execute(query).scalar_one()) - int(self._db.execute(query.where(IS_PLACE)).scalar_one())


_MANAGED: Final = select(func.count()).where(gpus.c.host == hosts.c.name).scalar_subquery()
_OF_HOSTS: Final[dict[str, ColumnElement[Any]]] = {
    **{name: hosts.c[name] for name in ("name", "state", "address", "cordoned", "last_seen_at")}, "gpus": _MANAGED,
}  # fmt: skip
HOST_ORDERS: Final = tuple(_OF_HOSTS)
"""What lists of hosts are sorted by: what is known of one without its snapshot."""


class HostPages:
    """Lists of hosts."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def names(
        self,
        selector: Selector = (),
        state: HostCondition | None = None,
        sort: str = "name",
        after: PageKey | None = None,
        most: int | None = None,
    ) -> tuple[tuple[str, object], ...]:
        """Each with what it is sorted by, in that order as :meth:`VmPages.page` has it; None: in any state."""
        name = sort.removeprefix("-")
        query = select(hosts.c.name, _OF_HOSTS[name].label("by")).where(*_picking(selector, state))
        key = (_OF_HOSTS[name], hosts.c.name)
        return tuple((row[0], row[1]) for row in _page(self._db, query, key, after, most, backwards=sort != name))

    def how_many(self, selector: Selector, state: HostCondition | None) -> int:
        """Those that :meth:`names` would have without a limit."""
        query = select(func.count()).select_from(hosts).where(*_picking(selector, state))
        return int(self._db.execute(query).scalar_one())


def _page(
    db: Statements, query: Select[Any], key: Sequence[ColumnElement[Any]], after: PageKey | None, most: int | None,
    *, backwards: bool,
) -> list[AnyRow]:  # fmt: skip
    by = [part.desc() if backwards else part.asc() for part in dict.fromkeys(key)]
    page: list[AnyRow] = []
    for half in _halves(key, after, backwards=backwards):
        rest = None if most is None else most - len(page)
        page += db.execute(query.where(*half).order_by(*by).limit(rest))
        if len(page) == most:
            break
    return page


def _halves(
    key: Sequence[ColumnElement[Any]], after: PageKey | None, *, backwards: bool
) -> Iterator[tuple[ColumnElement[bool], ...]]:
    """What must hold of those behind ``after``. Where nothing may stand in the column, that is a half of its own, as
    no index has it first on SQLite and on PostgreSQL alike."""
    column = key[0]
    if not isinstance(column, Column) or not column.nullable:
        yield () if after is None else (_behind(key, after, backwards=backwards),)
        return
    for empty in (False, True) if backwards else (True, False):
        half = column.is_(None) if empty else column.is_not(None)
        if after is None or (after[0] is None) == empty:
            yield (half,) if after is None else (half, _behind(key, after, backwards=backwards))
            after = None


def _behind(key: Sequence[ColumnElement[Any]], after: PageKey, *, backwards: bool) -> ColumnElement[bool]:
    parts = dict(zip(key, after, strict=True))
    if after[0] is None:
        del parts[key[0]]
    row, last = tuple_(*parts), tuple(parts.values())
    return row < last if backwards else row > last


def _matching(only: VmFilter) -> Iterator[ColumnElement[bool]]:
    """What must hold of each."""
    if (tenants := only.get("tenants")) is not None:
        yield vms.c.tenant.in_(tenants)
    if (state := only.get("state")) is not None:
        yield vms.c.state == state
    if (host := only.get("host")) is not None:
        yield vms.c.host == host
    if (profile := only.get("profile")) is not None:
        yield vms.c.profile_lower == profile.casefold()


def _picking(selector: Selector, state: HostCondition | None) -> Iterator[ColumnElement[bool]]:
    """As :func:`orchestrator.core.labels.selects` has it."""
    if state is not None:
        yield hosts.c.cordoned if state == "cordoned" else hosts.c.state == state
    for term in selector:
        label = hosts.c.labels[term.key].as_string()
        holds = label.is_not(None) if term.value is None else label == term.value
        yield or_(label.is_(None), ~holds) if term.negated else holds
