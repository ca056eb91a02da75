# SPDX-License-Identifier: Apache-2.0
"""Networks of tenants and of the site."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, delete, insert, select, update

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.vms.network import Network, unknown_network
from orchestrator.store.rows import network_of, network_values
from orchestrator.store.statements import Precompiled, Statements
from orchestrator.store.tables import networks

_NETWORK: Final = Precompiled(select(networks).where(networks.c.name == bindparam("its_name")))
_BRIDGED: Final = Precompiled(select(networks).where(networks.c.subnet.is_(None)))


class Networks:
    """Networks that VMs are put on, by their names on hosts (core/vms/network.py)."""

    def __init__(self, connection: Statements) -> None:
        self._db = connection

    def add(self, network: Network) -> None:
        """:raises Conflict: ``network.exists``"""
        if self.find(network.name) is not None:
            raise Conflict("network.exists", f"there is already a network {network.name}", hint="choose another name")
        self._db.execute(insert(networks).values(network_values(network)))

    def find(self, name: str) -> Network | None:
        row = self._db.execute(_NETWORK, {"its_name": name}).one_or_none()
        return None if row is None else network_of(row)

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""
        found = self.find(name)
        if found is None:
            raise unknown_network(name, [one.short for one in self.list()])
        return found

    def list(self) -> tuple[Network, ...]:
        return tuple(network_of(row) for row in self._db.execute(select(networks).order_by(networks.c.name)))

    def uplinks(self) -> dict[str, Uplink]:
        """Of those on bridges of hosts, by name."""
        found = map(network_of, self._db.execute(_BRIDGED))
        return {one.name: one.uplink for one in found if one.uplink is not None}

    def update(self, network: Network) -> None:
        """By its name."""
        self._db.execute(update(networks).where(networks.c.name == network.name).values(network_values(network)))

    def remove(self, name: str) -> None:
        """Gone already is fine."""
        self._db.execute(delete(networks).where(networks.c.name == name))
