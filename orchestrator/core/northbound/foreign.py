# SPDX-License-Identifier: Apache-2.0
"""What somebody else has put into rows of ours: a rule on our switch, a route of our router. It is told of, and left as
it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from orchestrator.core.northbound.groups import PORT_GROUP
from orchestrator.core.northbound.networks import DNS, NAT, PORT, ROUTE, ROUTER, ROUTER_PORT, RULE, SWITCH
from orchestrator.core.northbound.rows import Existing, members
from orchestrator.core.ovn import OvnTrouble

_HELD: Final[Mapping[str, Mapping[str, str]]] = {
    SWITCH: {"ports": PORT, "acls": RULE, "dns_records": DNS, "qos_rules": "QoS", "load_balancer": "Load_Balancer"},
    ROUTER: {"ports": ROUTER_PORT, "static_routes": ROUTE, "nat": NAT, "policies": "Logical_Router_Policy",
             "load_balancer": "Load_Balancer"},
    PORT_GROUP: {"acls": RULE},
}  # fmt: skip
"""Of each table what is in its rows by which column, and in which table it is (ovn-nb(5))."""
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((PORT, RULE, DNS, ROUTER_PORT, ROUTE, NAT), ()),
    **{table: ("name", *columns) for table, columns in _HELD.items()},
}
"""What is read of the site's rows; those of other tables are never ours."""
_TELLING: Final = (
    "name", "type", "direction", "priority", "match", "action", "ip_prefix", "nexthop", "external_ip", "logical_ip",
    "addresses", "networks", "records", "vips",
)  # fmt: skip
_MAX_WORDS: Final = 300
MAX_SHOWN: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignRow:
    """Somebody's, in one of ours."""

    table: str
    uuid: UUID
    holder: str
    """Table of the row that has it."""
    holder_uuid: str
    holder_name: str
    column: str
    """By which that row has it."""


def foreign_rows(existing: Existing) -> Iterator[ForeignRow]:
    """``existing``: the site's rows of :data:`TABLES`."""
    for (holder, holder_uuid), columns in existing.items():
        for column, table in _HELD.get(holder, {}).items():
            for uuid in sorted(members(columns.get(column))):
                if (table, uuid) not in existing:
                    yield ForeignRow(
                        table=table, uuid=UUID(uuid), holder=holder, holder_uuid=holder_uuid,
                        holder_name=str(columns.get("name")), column=column,
                    )  # fmt: skip


def trouble_of(row: ForeignRow, columns: Mapping[str, Any]) -> OvnTrouble:
    """``columns``: of the row itself."""
    parts = [f"{name} {columns[name]}" for name in _TELLING if columns.get(name)]
    command = f"ovn-nbctl remove {row.holder} {row.holder_uuid} {row.column} {row.uuid}"
    return OvnTrouble(
        code="ovn.foreign_row", subject=row.holder_name[:_MAX_WORDS],
        message=f"somebody's {row.table} is among its {row.column}: {', '.join(parts)}"[:_MAX_WORDS],
        remedy=f"it is left as it is, and '{command}' on a central server takes it away",
    )  # fmt: skip
