# SPDX-License-Identifier: Apache-2.0
"""Networks by their names on hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.provider_networks import KnownChassis
from orchestrator.core.vms.network import Network
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import claim, put, vm

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


def test_floating_addresses_are_nobodys_twice_and_outlive_their_vm(store: Store) -> None:
    of = vm("a")
    mine = FloatingAddress(address="192.0.2.7", network="outside", tenant="red", vm=of.id, card_network="red.n")
    put(store, of, claim(of, 1))
    with store.begin() as tx:
        tx.floating_addresses.add(replace(mine, vm=None, card_network=None))
        tx.floating_addresses.update(mine)
    for taken in (mine, replace(mine, tenant="blue")):
        with pytest.raises(ClaimLost), store.begin() as tx:
            tx.floating_addresses.add(taken)
    with store.begin() as tx:
        assert tx.floating_addresses.list("red") == tx.floating_addresses.list(vm=of.id) == (mine,)
        assert tx.floating_addresses.list("blue") == ()
        tx.networks.unclaim("elsewhere", mine.address)
        assert tx.networks.taken("outside", (mine.address, "192.0.2.8")) == {mine.address}
        tx.vms.remove(of.id)
    with store.begin() as tx:
        assert tx.floating_addresses.list() == (replace(mine, vm=None, card_network=None),)
        tx.floating_addresses.remove(mine)
        assert (tx.floating_addresses.list(), tx.networks.taken("outside", (mine.address,))) == ((), frozenset())


def test_hosts_of_ovn_are_kept_as_they_were_last_put(store: Store) -> None:
    with store.begin() as tx:
        assert tx.networks.chassis() == ()
        for known in (KnownChassis(name="a", mappings=("p1", "p2"), gateway=True),), ():
            tx.networks.put_chassis(known)
            assert tx.networks.chassis() == known
