# SPDX-License-Identifier: Apache-2.0
"""Networks that VMs are put on."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.names import check_name
from orchestrator.core.network import DEFAULT_NAME, DEFAULT_SUBNET, Network, free_subnet, parse_subnet
from orchestrator.ports.clock import Clock
from orchestrator.ports.store.transaction import Store
from orchestrator.services.acting import actor


@dataclass(frozen=True, kw_only=True)
class NetworkService:
    """Networks are made on a host when its first VM needs them."""

    store: Store
    clock: Clock

    def add(self, name: str, subnet: str | None) -> Network:
        """A libvirt NAT network; ``subnet`` as ``10.88.1.0/24``, None: the next free one.

        :raises InvalidInput: ``network.subnet_invalid``
        :raises Conflict: ``network.exists``, ``network.subnet_overlaps``
        """
        check_name(name, what="network")
        with self.store.begin() as tx:
            there = next((network for network in tx.networks.list() if network.name == name), None)
            if there is not None and subnet in {None, there.subnet}:
                return there
            others = tuple(network.subnet for network in tx.networks.list() if network.name != name)
            chosen = free_subnet(others) if subnet is None else parse_subnet(subnet, others)
            network = Network(name=name, subnet=chosen)
            tx.networks.add(network)
            tx.audit.append(at=self.clock.now(), actor=actor(), action="add_network", subject=name, outcome=chosen)
        return network

    def ensure_default(self) -> None:
        """Every control plane has the network that VMs get when none is named."""
        self.add(DEFAULT_NAME, DEFAULT_SUBNET)

    def get(self, name: str) -> Network:
        """:raises NotFound: ``network.unknown``"""
        with self.store.read() as tx:
            return tx.networks.get(name)

    def list(self) -> tuple[Network, ...]:
        """By name."""
        with self.store.read() as tx:
            return tx.networks.list()
