# SPDX-License-Identifier: Apache-2.0
"""Rows of OVN's northbound database, and what makes those that it has into those that it should have. Pure.

A row's UUID follows from what it is for: a transaction says it at the insert (ovsdb-server(7), 5.2.1), so rows refer
to each other, and are read again, without asking what they are called. Each has our id and the site's in its
``external_ids``: all others are foreign, and no operation here touches one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol
from uuid import UUID, uuid5

from orchestrator.core.ovn import OUR_ID

OUR_SITE: Final = "vgpuctl-site"
"""Of ``external_ids``: whose row it is. Sites may share an OVN, and none takes another's row for one left over."""
ROOTS: Final = frozenset(
    {"Logical_Switch", "Logical_Router", "DHCP_Options", "DNS", "Port_Group", "Address_Set", "Meter"}
)
"""Tables whose rows are there until they are deleted (ovn-nb.ovsschema); rows of others, as long as one refers to
them."""
_NAMESPACE: Final = UUID("6d0f9c52-3f0b-5c3f-9d55-5d3b9a5f7c11")
Value = str | int | bool | UUID | tuple[str, ...] | Mapping[str, str]
"""A UUID is a reference, a tuple a set."""
Existing = Mapping[tuple[str, str], Mapping[str, Any]]
"""(table, UUID) → columns as they are read: sets as lists, or the value itself of a set of one."""
Operation = dict[str, Any]
"""One of a transaction, as OVSDB writes it (RFC 7047, 5.2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberOf:
    """Of a set of rows that another row has: ports of a switch."""

    table: str
    key: str
    column: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OvnRow:
    """One that should be."""

    table: str
    key: str
    """What it is for, by ids that are never given again; unique in its table."""
    columns: Mapping[str, Value]
    """Those that are ours to say; ``external_ids`` comes by itself."""
    of: tuple[MemberOf, ...] = ()
    """Sets of other rows that it is in."""
    uuid: UUID = field(init=False)
    """Put together once: tens of thousands are compared."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", row_uuid(self.table, self.key))


class Placed(Protocol):
    """A row that can be read: one of ours that should be, or somebody's."""

    @property
    def table(self) -> str: ...
    @property
    def uuid(self) -> UUID: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RowChange:
    """What is to be done about one row."""

    words: str
    """What differs, for people."""
    operations: tuple[Operation, ...]


@lru_cache(maxsize=1024)
def row_uuid(table: str, key: str) -> UUID:
    """Of the row with that key. What one transaction says of a network names the same few again and again."""
    return uuid5(_NAMESPACE, f"{table} {key}")


def difference(wanted: Iterable[OvnRow], existing: Existing, site: str) -> tuple[RowChange, ...]:
    """For these rows, whatever else exists. Rows come after those that they are in."""
    return tuple(change for row in wanted for change in _of_row(row, existing, site))


def inserted(new: Iterable[OvnRow], beneath: Iterable[OvnRow], site: str) -> tuple[Operation, ...]:
    """Writes new rows without having read any. Refused whole where one of them exists, or where one of those
    ``beneath`` them is not as it should be by then: that takes :func:`difference`."""
    held = tuple(
        _unless(row.table, str(row.uuid), {name: _written(value) for name, value in row.columns.items()})
        for row in beneath
    )
    return (*held, *operations_of(difference(new, {}, site)))


def operations_of(changes: Iterable[RowChange]) -> tuple[Operation, ...]:
    """Of one transaction, in order."""
    return tuple(operation for change in changes for operation in change.operations)


def left_over(
    wanted: Iterable[OvnRow], existing: Existing, site: str, unwritten: Iterable[OvnRow] = ()
) -> tuple[RowChange, ...]:
    """Of the site's rows, all of which exist there, those that are wanted no more. Without its group a card would be
    open to all: so what has other ports by then than were read stays, and what has any of ``unwritten``, which are not
    in their new groups yet. The others leave it, as its rules may allow them what no rule of now does."""
    kept, waiting = {(row.table, str(row.uuid)) for row in wanted}, {str(row.uuid) for row in unwritten}
    gone = {key: columns for key, columns in existing.items() if key not in kept and _is_ours(columns, site)}
    holders = _holders({key: columns for key, columns in existing.items() if key not in gone}) if gone else {}
    changes = []
    for (table, uuid), columns in gone.items():
        words = f"{_title(table, columns['external_ids'][OUR_ID])}: wanted no more"
        if table not in ROOTS:
            taken_out = tuple(_mutate(*key, name, "delete", uuid) for key, name in holders.get(uuid, ()))
            changes.append(RowChange(words=words, operations=taken_out))  # of a row that goes too: none
        elif waiting & (ports := members(columns.get("ports"))):
            left = (_mutate(table, uuid, "ports", "delete", *ports - waiting),) if ports - waiting else ()
            changes.append(RowChange(words=f"{words}, but for some of its ports", operations=left))
        else:
            held = (_still(table, uuid, "ports", columns["ports"]),) if "ports" in columns else ()
            changes.append(RowChange(words=words, operations=(*held, _delete(table, uuid))))
    return tuple(change for change in changes if change.operations)


def removal(rows: Iterable[OvnRow]) -> tuple[Operation, ...]:
    """Takes them away, whether they are there or not."""
    operations = []
    for row in rows:
        operations += [_mutate_member(row, member, "delete") for member in row.of]
        operations += [_delete(row.table, str(row.uuid))] if row.table in ROOTS else []
    return tuple(operations)


def exchanged(
    holder: OvnRow, column: str, uuids: AbstractSet[str], existing: Existing, *, join: bool
) -> Iterator[RowChange]:
    """What makes a set that a row has into this one. ``join``: what is missing comes, too."""
    has = _plain(existing.get((holder.table, str(holder.uuid)), {}).get(column))
    for mutator, some, what in (
        ("delete", has - uuids, "too many"),
        ("insert", uuids - has if join else (), "missing"),
    ):
        if some:
            mutate = _mutate(holder.table, str(holder.uuid), column, mutator, *some)
            words = f"{_title(holder.table, holder.key)}: {len(some)} of its {column} {what}"
            yield RowChange(words=words, operations=(mutate,))


def _of_row(row: OvnRow, existing: Existing, site: str) -> Iterator[RowChange]:
    columns = existing.get((row.table, str(row.uuid)))
    title = _title(row.table, row.key)
    if columns is None:
        inserted = {**row.columns, "external_ids": {OUR_ID: row.key, OUR_SITE: site}}
        insert = {"op": "insert", "table": row.table, "uuid": str(row.uuid),
                  "row": {name: _written(value) for name, value in inserted.items()}}  # fmt: skip
        joined = tuple(_mutate_member(row, member, "insert") for member in row.of)
        yield RowChange(words=f"{title}: missing", operations=(insert, *joined))
        return
    differing = {name: value for name, value in row.columns.items() if _plain(columns.get(name)) != _plain(value)}
    if differing:
        written = {name: _written(value) for name, value in differing.items()}
        update = {"op": "update", "table": row.table, "where": _where(str(row.uuid)), "row": written}
        yield RowChange(words=f"{title}: {', '.join(sorted(differing))} differ", operations=(update,))
    for member in row.of:
        holder = existing.get((member.table, str(row_uuid(member.table, member.key))))
        if holder is None or str(row.uuid) not in _plain(holder.get(member.column)):  # None: it has just come
            words = f"{title}: not among the {member.column} of its {member.table}"
            left = () if member.table in _SHARING else (_left_by(row, member),)
            yield RowChange(words=words, operations=(*left, _mutate_member(row, member, "insert")))


def astray(wanted: Iterable[OvnRow], existing: Existing) -> Iterator[RowChange]:
    """Takes these rows out of sets of the site's that they are no more in: a card is on one network. Who shares its
    rows with others of its kind is not looked at."""
    places = {
        str(row.uuid): {(of.table, str(row_uuid(of.table, of.key)), of.column) for of in row.of} for row in wanted
    }
    for (table, uuid), columns in existing.items():
        for name in () if table in _SHARING else _SETS & columns.keys():
            for member in sorted(members(columns[name]) & places.keys()):
                if (table, uuid, name) not in places[member]:
                    words = f"{_title(table, columns['external_ids'][OUR_ID])}: has one of its {name} no more"
                    yield RowChange(words=words, operations=(_mutate(table, uuid, name, "delete", member),))


def _left_by(row: OvnRow, member: MemberOf) -> Operation:
    """Takes it out of the set of whoever else has it."""
    where = [["_uuid", "!=", ["uuid", str(row_uuid(member.table, member.key))]],
             [member.column, "includes", ["uuid", str(row.uuid)]]]  # fmt: skip
    return {**_mutate_member(row, member, "delete"), "where": where}


def _is_ours(columns: Mapping[str, Any], site: str) -> bool:
    ids = columns.get("external_ids")
    return isinstance(ids, Mapping) and OUR_ID in ids and ids.get(OUR_SITE) == site


def _holders(existing: Existing) -> Mapping[str, list[tuple[tuple[str, str], str]]]:
    """By UUIDs of rows, whose sets they are in, and which."""
    holders = defaultdict[str, list[tuple[tuple[str, str], str]]](list)
    for key, columns in existing.items():
        for name in _SETS & columns.keys():
            for uuid in members(columns[name]):
                holders[uuid].append((key, name))
    return holders


_SETS: Final = frozenset({"ports", "acls", "dns_records", "static_routes", "nat", "gateway_chassis"})
"""Columns that rows are kept in by other rows."""
_SHARING: Final = frozenset({"Port_Group"})
"""Tables whose rows have some in common: a card is in several groups."""


def members(value: Any) -> frozenset[str]:
    """UUIDs in a set of references, as it is read: a set of one is that one."""
    several = value if isinstance(value, (tuple, list)) else () if value is None else (value,)
    return frozenset(map(str, several))


def _plain(value: Any) -> Any:
    """The same for the same, read or wanted."""
    if isinstance(value, Mapping):
        return dict(value)
    return members(value)


def _written(value: Value) -> Any:
    """As OVSDB writes it."""
    if isinstance(value, UUID):
        return ["uuid", str(value)]
    if isinstance(value, tuple):
        return ["set", list(value)]
    return ["map", [list(pair) for pair in value.items()]] if isinstance(value, Mapping) else value


def _where(uuid: str) -> list[Any]:
    return [["_uuid", "==", ["uuid", uuid]]]


def _still(table: str, uuid: str, column: str, value: Any) -> Operation:
    """Refuses the transaction where that set of references is another by then."""
    return _unless(table, uuid, {column: ["set", [["uuid", each] for each in sorted(_plain(value))]]})


def _unless(table: str, uuid: str, row: Mapping[str, Any]) -> Operation:
    """Refuses the transaction where the row has other columns (RFC 7047, 5.2.6)."""
    return {"op": "wait", "table": table, "where": _where(uuid), "columns": list(row), "until": "==", "rows": [row],
            "timeout": 0}  # fmt: skip


def _delete(table: str, uuid: str) -> Operation:
    return {"op": "delete", "table": table, "where": _where(uuid)}


def _mutate_member(row: OvnRow, member: MemberOf, mutator: str) -> Operation:
    return _mutate(member.table, str(row_uuid(member.table, member.key)), member.column, mutator, str(row.uuid))


def _mutate(table: str, holder: str, column: str, mutator: str, *uuids: str) -> Operation:
    mutation = [column, mutator, ["set", [["uuid", uuid] for uuid in sorted(uuids)]]]
    return {"op": "mutate", "table": table, "where": _where(holder), "mutations": [mutation]}


def _title(table: str, key: str) -> str:
    return f"{table} {key}"
