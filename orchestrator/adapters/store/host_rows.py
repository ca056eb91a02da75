# SPDX-License-Identifier: Apache-2.0
"""Hosts, their GPUs and what was last seen on them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, insert, or_, select, update

from orchestrator.adapters.store.rows import host_of, host_values
from orchestrator.adapters.store.tables import gpus, hosts, snapshots
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.host import Host
from orchestrator.core.snapshot import HostSnapshot
from orchestrator.core.wire import snapshot_from_dict, snapshot_to_dict

Parsed = dict[str, tuple[float, HostSnapshot]]
"""Host → when the look began, and what was seen: reading a snapshot's JSON costs more than all queries together."""


class SqlHosts:
    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        self._db = connection
        self._parsed = parsed
        self._all: dict[str, HostSnapshot] | None = None
        """What this transaction has read: nobody else changes what it sees."""

    def add(self, host: Host) -> None:
        """:raises Conflict: ``host.exists``, ``host.address_taken``"""
        at_its_address = and_(hosts.c.address == host.address, hosts.c.port == host.port)
        taken = self._db.execute(select(hosts.c.name).where(or_(hosts.c.name == host.name, at_its_address)))
        names = set(taken.scalars())
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
        self._db.execute(insert(hosts).values(host_values(host)))
        self.set_gpus(host.name, host.managed_gpus)

    def get(self, name: str) -> Host:
        """:raises NotFound: ``host.unknown``"""
        row = self._db.execute(select(hosts).where(hosts.c.name == name)).one_or_none()
        if row is None:
            raise NotFound("host.unknown", f"no host is called {name[:63]!a}", hint="'vgpuctl host list' shows them")
        return host_of(row, self._gpus_of(name))

    def list(self) -> tuple[Host, ...]:
        rows = self._db.execute(select(hosts).order_by(hosts.c.name)).all()
        managed: dict[str, list[str]] = {row.name: [] for row in rows}
        for host, address in self._db.execute(select(gpus.c.host, gpus.c.address).order_by(gpus.c.address)):
            managed[host].append(address)
        return tuple(host_of(row, tuple(managed[row.name])) for row in rows)

    def update(self, host: Host) -> None:
        """Everything but the list of managed GPUs."""
        self._db.execute(update(hosts).where(hosts.c.name == host.name).values(host_values(host)))

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
        self._db.execute(update(gpus).where(gpus.c.host == name, gpus.c.address == gpu).values(functions_by_us=by_us))

    def enabled_by_us(self, name: str) -> tuple[str, ...]:
        query = select(gpus.c.address).where(gpus.c.host == name, gpus.c.functions_by_us).order_by(gpus.c.address)
        return tuple(self._db.execute(query).scalars())

    def remove(self, name: str) -> None:
        """With its snapshot and GPUs. Gone already is fine."""
        self._all = None
        self._db.execute(delete(hosts).where(hosts.c.name == name))

    def put_snapshot(self, name: str, snapshot: HostSnapshot, taken_at: float) -> None:
        """``taken_at``: when the look began. One that began earlier than the stored one is out of date."""
        newer = select(snapshots.c.host).where(snapshots.c.host == name, snapshots.c.taken_at > taken_at)
        if self._db.execute(newer).one_or_none() is not None:
            return
        self._all = None
        self._db.execute(delete(snapshots).where(snapshots.c.host == name))
        self._db.execute(insert(snapshots).values(host=name, taken_at=taken_at, document=snapshot_to_dict(snapshot)))

    def snapshot(self, name: str) -> HostSnapshot | None:
        if self._all is not None:
            return self._all.get(name)
        taken_at = self._db.execute(select(snapshots.c.taken_at).where(snapshots.c.host == name)).scalar_one_or_none()
        return None if taken_at is None else self._taken_at(name, taken_at)

    def snapshots(self) -> dict[str, HostSnapshot]:
        """Of every host that was observed."""
        if self._all is None:
            rows = self._db.execute(select(snapshots.c.host, snapshots.c.taken_at)).all()
            self._all = {row.host: self._taken_at(row.host, row.taken_at) for row in rows}
        return dict(self._all)

    def _taken_at(self, name: str, taken_at: float) -> HostSnapshot:
        known = self._parsed.get(name)
        if known is None or known[0] != taken_at:
            document = self._db.execute(select(snapshots.c.document).where(snapshots.c.host == name)).scalar_one()
            known = (taken_at, snapshot_from_dict(document))
            self._parsed[name] = known
        return known[1]

    def _gpus_of(self, name: str) -> tuple[str, ...]:
        query = select(gpus.c.address).where(gpus.c.host == name).order_by(gpus.c.address)
        return tuple(self._db.execute(query).scalars())
