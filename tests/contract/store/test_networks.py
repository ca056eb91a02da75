# SPDX-License-Identifier: Apache-2.0
"""Networks by their names on hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.vms.network import Network
from orchestrator.store.database import Store

OWN = Network(name="red.n", subnet="10.88.0.0/24")
OF_SITE = Network(name="n", subnet="10.88.1.0/24", shared=True)


def test_a_network_is_found_changed_and_removed(store: Store) -> None:
    with store.begin() as tx:
        tx.networks.add(OWN)
        tx.networks.add(OF_SITE)
        tx.networks.update(replace(OF_SITE, shared=False))
        with pytest.raises(Conflict):
            tx.networks.add(OWN)
    with store.begin() as tx:
        assert set(tx.networks.list()) == {replace(OF_SITE, shared=False), OWN}
        assert tx.networks.find("red.n") == tx.networks.get("red.n") == OWN
        tx.networks.remove("red.n")
        assert tx.networks.find("red.n") is None


def test_networks_on_bridges_of_hosts_are_told_from_ours(store: Store) -> None:
    bridged = {"red.lab": Uplink(bridge="br0", vlan=120), "office": Uplink(bridge="br1")}
    bridged[f"{'t' * 63}.{'n' * 63}"] = Uplink(bridge="br2")
    with store.begin() as tx:
        tx.networks.add(OWN)
        for name, uplink in bridged.items():
            tx.networks.add(Network(name=name, uplink=uplink, dhcp_servers=("192.0.2.1",)))
    with store.read() as tx:
        assert {one.name: one.uplink for one in tx.networks.list() if one.uplink is not None} == bridged
