# SPDX-License-Identifier: Apache-2.0
"""Hosts, their GPUs and what was last seen on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, insert, or_, select, update

from orchestrator.adapters.store.rows import host_of, host_values
from orchestrator.adapters.store.tables import gpus, hosts, snapshots
from orchestrator.core.errors import Conflict, NotFound, Unknown
from orchestrator.core.host import Host
from orchestrator.core.snapshot import HostSnapshot
from orchestrator.core.wire import snapshot_from_dict, snapshot_to_dict

log = logging.getLogger(__name__)

Parsed = dict[str, tuple[float, HostSnapshot | None]]
"""Host → when the observation began, and what was observed: reading its JSON costs more than all queries together."""

# Put together once, as that takes as long as asking.
_BY_NAME: Final = select(hosts).where(hosts.c.name == bindparam("host"))
_SILENT: Final = select(hosts.c.name, hosts.c.last_seen_at).where(
    hosts.c.state.in_(["unreachable", "quarantined", "forgotten"])
)
_AT_ITS_ADDRESS: Final = and_(hosts.c.address == bindparam("address"), hosts.c.port == bindparam("port"))
_IN_THE_WAY: Final = select(hosts.c.name).where(or_(hosts.c.name == bindparam("name"), _AT_ITS_ADDRESS))
_CHANGE: Final = update(hosts).where(hosts.c.name == bindparam("its_name"))
_ITS_GPUS: Final = select(gpus.c.address).where(gpus.c.host == bindparam("host")).order_by(gpus.c.address)
_ENABLED: Final = _ITS_GPUS.where(gpus.c.functions_by_us)
_MARK: Final = update(gpus).where(gpus.c.host == bindparam("its_host"), gpus.c.address == bindparam("its_address"))
_TAKEN_AT: Final = select(snapshots.c.taken_at).where(snapshots.c.host == bindparam("host"))
_DOCUMENT: Final = select(snapshots.c.document).where(snapshots.c.host == bindparam("host"))
_NO_SNAPSHOT: Final = delete(snapshots).where(snapshots.c.host == bindparam("its_host"))


class SqlHosts:
    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        self._db = connection
        self._parsed = parsed
        self._all: dict[str, HostSnapshot] | None = None
        """What this transaction has read: nobody else changes what it sees."""

    def add(self, host: Host) -> None:
        """:raises Conflict: ``host.exists``, ``host.address_taken``"""
        values = host_values(host)
        names = set(self._db.execute(_IN_THE_WAY, {one: values[one] for one in ("name", "address", "port")}).scalars())
        if host.name in names:
            raise Conflict(
                "host.exists",
                f"there is already a host {host.name}",
                hint="'vgpuctl host show' shows it; choose another name for another machine",
            )
        if names:
            raise Conflict(
                "host.address_taken",
                f"host {names.pop()} has that address already",
                hint="'vgpuctl host list' shows addresses",
            )
        self._db.execute(insert(hosts), values)
        self.set_gpus(host.name, host.managed_gpus)

    def get(self, name: str) -> Host:
        """:raises NotFound: ``host.unknown``"""
        row = self._db.execute(_BY_NAME, {"host": name}).one_or_none()
        if row is None:
            raise NotFound("host.unknown", f"no host is called {name[:63]!a}", hint="'vgpuctl host list' shows them")
        return host_of(row, self._gpus_of(name))

    def list(self) -> tuple[Host, ...]:
        rows = self._db.execute(select(hosts).order_by(hosts.c.name)).all()
        managed: dict[str, list[str]] = {row.name: [] for row in rows}
        for host, address in self._db.execute(select(gpus.c.host, gpus.c.address).order_by(gpus.c.address)):
            managed[host].append(address)
        return tuple(host_of(row, tuple(managed[row.name])) for row in rows)

    def silent(self) -> dict[str, float | None]:
        """Those that do not answer, or may not be believed: when they last were seen."""
        return {row.name: row.last_seen_at for row in self._db.execute(_SILENT)}

    def update(self, host: Host) -> None:
        """Everything but the list of managed GPUs."""
        self._db.execute(_CHANGE, {"its_name": host.name, **host_values(host)})

    def observed(self, name: str, at: float) -> None:
        """When the last observation that it answered began; nothing else of it. Gone already is fine."""
        self._db.execute(_CHANGE, {"its_name": name, "last_seen_at": at})

    def set_gpus(self, name: str, addresses: Sequence[str]) -> None:
        """The whole list; GPUs that stay keep what is known about them."""
        known = set(self._gpus_of(name))
        gone = known - set(addresses)
        if gone:
            self._db.execute(delete(gpus).where(gpus.c.host == name, gpus.c.address.in_(gone)))
        new = [
            {"host": name, "address": address, "functions_by_us": False}
            for address in addresses
            if address not in known
        ]
        if new:
            self._db.execute(insert(gpus), new)

    def mark_enabled(self, name: str, gpu: str, *, by_us: bool) -> None:
        """Remember that it was us who switched a GPU's virtual functions on."""
        self._db.execute(_MARK, {"its_host": name, "its_address": gpu, "functions_by_us": by_us})

    def enabled_by_us(self, name: str) -> tuple[str, ...]:
        return tuple(self._db.execute(_ENABLED, {"host": name}).scalars())

    def remove(self, name: str) -> None:
        """With its snapshot and GPUs. Gone already is fine."""
        self._all = None
        self._db.execute(delete(hosts).where(hosts.c.name == name))

    def put_snapshot(self, name: str, snapshot: HostSnapshot, taken_at: float) -> None:
        """``taken_at``: when the observation began. One that began earlier than the stored one is out of date."""
        stored = self._db.execute(_TAKEN_AT, {"host": name}).scalar_one_or_none()
        if stored is not None and stored > taken_at:
            return
        self._all = None
        self._db.execute(_NO_SNAPSHOT, {"its_host": name})
        document = snapshot_to_dict(snapshot)
        self._db.execute(insert(snapshots), {"host": name, "taken_at": taken_at, "document": document})

    def snapshot(self, name: str) -> HostSnapshot | None:
        if self._all is not None:
            return self._all.get(name)
        taken_at = self._db.execute(_TAKEN_AT, {"host": name}).scalar_one_or_none()
        return None if taken_at is None else self._taken_at(name, taken_at)

    def snapshots(self) -> dict[str, HostSnapshot]:
        """Of every host that was observed."""
        if self._all is None:
            rows = self._db.execute(select(snapshots.c.host, snapshots.c.taken_at)).all()
            found = {row.host: self._taken_at(row.host, row.taken_at) for row in rows}
            self._all = {name: snapshot for name, snapshot in found.items() if snapshot is not None}
        return dict(self._all)

    def _taken_at(self, name: str, taken_at: float) -> HostSnapshot | None:
        known = self._parsed.get(name)
        if known is None or known[0] != taken_at:
            known = (taken_at, self._read(name))
            self._parsed[name] = known
        return known[1]

    def _read(self, name: str) -> HostSnapshot | None:
        """None: it cannot be read, so its host is as one that was never observed; the next observation replaces it."""
        try:
            return snapshot_from_dict(self._db.execute(_DOCUMENT, {"host": name}).scalar_one())
        except (ValueError, Unknown):
            log.exception("the stored snapshot of %s cannot be read", name)
            return None

    def _gpus_of(self, name: str) -> tuple[str, ...]:
        return tuple(self._db.execute(_ITS_GPUS, {"host": name}).scalars())
