# SPDX-License-Identifier: Apache-2.0
"""Implements ports/overlay.Northbound: OVN's northbound database, read and written by its own protocol."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.adapters.ovn.ovsdb import OvsdbClient, plain_row, unreachable
from orchestrator.core.errors import Retryable
from orchestrator.core.northbound.rows import OUR_SITE, Existing, Operation, Placed

_NAME: Final = "OVN_Northbound"
_CONNECT_S: Final = 5.0
_WHOLE_S: Final = 60.0
"""For an answer with tens of thousands of rows."""
_WHOLE_BYTES: Final = 256 * 1024 * 1024
"""Of it. A row has some 600: one tenant's 100 groups of 100 rules on six networks are 60,000 rows, 38 MiB."""


@dataclass(frozen=True)
class _Session:
    client: OvsdbClient
    owns_names: bool
    """See :class:`orchestrator.ports.overlay.NorthboundSession`."""

    def read(self, rows: Iterable[Placed]) -> Existing:
        """See :class:`orchestrator.ports.overlay.NorthboundSession`."""
        keys = [(row.table, str(row.uuid)) for row in rows]
        selects = [{"op": "select", "table": table, "where": [["_uuid", "==", ["uuid", uuid]]]} for table, uuid in keys]
        return self._existing(selects)

    def read_all(self, site: str, tables: Mapping[str, Sequence[str]]) -> Existing:
        """See :class:`orchestrator.ports.overlay.NorthboundSession`."""
        ours = ["external_ids", "includes", ["map", [[OUR_SITE, site]]]]
        self.client.limit_s, self.client.max_bytes = _WHOLE_S, _WHOLE_BYTES
        return self._existing([
            {"op": "select", "table": table, "where": [ours],
             "columns": ["_uuid", "external_ids", *(set(columns) - self._lacks(table))]}
            for table, columns in tables.items()
        ])  # fmt: skip

    def change(self, operations: Sequence[Operation]) -> None:
        """See :class:`orchestrator.ports.overlay.NorthboundSession`."""
        if operations:
            self.client.transact(_NAME, *operations)

    def _lacks(self, table: str) -> set[str]:
        return {"options"} if table == "DNS" and not self.owns_names else set()

    def _existing(self, selects: Sequence[Operation]) -> Existing:
        existing: dict[tuple[str, str], Mapping[str, Any]] = {}
        for select, answer in zip(selects, self.client.transact(_NAME, *selects) if selects else (), strict=True):
            for row in map(plain_row, answer["rows"]):
                existing[select["table"], row["_uuid"]] = row
        return existing


@dataclass(frozen=True, kw_only=True)
class OvnNorthbound:
    """``endpoints``, ``trust``: as :class:`orchestrator.adapters.ovn.databases.OvnDatabases` has them."""

    endpoints: Sequence[str]
    trust: Callable[[], ssl.SSLContext | None]

    @contextmanager
    def open(self) -> Iterator[_Session]:
        """See :class:`orchestrator.ports.overlay.Northbound`. Of several servers the one that leads: others may be
        behind."""
        trust, error = self.trust(), unreachable("none of its servers leads the others")
        for endpoint in self.endpoints:
            try:
                client = OvsdbClient(endpoint, trust, _CONNECT_S)
            except Retryable as failed:
                error = failed
                continue
            with client:
                try:
                    schema = _schema(client)
                except Retryable as failed:
                    error, schema = failed, None
                if schema is not None:
                    yield _Session(client, "options" in schema["tables"]["DNS"]["columns"])
                    return
        raise error


def _schema(client: OvsdbClient) -> dict[str, Any] | None:
    """Of the database (RFC 7047, 3.2); None: the server does not lead. :raises Retryable: ``ovn.unreachable``"""
    (rows,) = client.select("_Server", ("Database", ("name", "connected", "leader", "schema")))
    row = next((row for row in rows if row["name"] == _NAME), None)
    leads = row is not None and row["connected"] is True and row["leader"] is True
    return dict(json.loads(row["schema"])) if row is not None and leads else None
