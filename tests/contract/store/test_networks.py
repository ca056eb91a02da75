# SPDX-License-Identifier: Apache-2.0
"""Networks by their names on hosts."""

from __future__ import annotations

from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

import pytest

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict
from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.overlay import NetworkPeer, OvnNetwork, Port, ProviderPlace, WayOut
from orchestrator.core.provider_networks import KnownChassis
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import claim, put, vm
from tests.fakes.cleaned import CLEANED
from tests.fakes.recount import miscounted

OWN = Network(name="red.n", subnet="10.88.0.0/24")
OF_SITE = Network(name="n", subnet="10.88.1.0/24", shared=True)
ALIKE = ("2064", "2347")
"""What two ids are made of whose first cards have one hardware address."""


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
        tx.networks.release([("elsewhere", mine.address)])
        assert tx.networks.taken("outside", (mine.address, "192.0.2.8")) == {mine.address}
        tx.vms.remove(of.id, CLEANED)
    with store.begin() as tx:
        assert tx.floating_addresses.list() == (replace(mine, vm=None, card_network=None),)
        tx.floating_addresses.remove(mine)
        assert tx.floating_addresses.list() == ()
        assert tx.networks.without_vm() == {("outside", mine.address)}
    with pytest.raises(ClaimLost), store.begin() as tx:
        tx.floating_addresses.add(mine)
    with store.begin() as tx:
        tx.networks.release(tx.networks.without_vm())
        assert tx.networks.taken("outside", (mine.address,)) == frozenset()


def _with_ports(name: str, **addresses: str) -> Vm:
    ports = tuple(Port(network=f"red.{network}", address=address) for network, address in addresses.items())
    own, (first, *more) = vm(name), (port.network for port in ports)
    return replace(own, spec=replace(own.spec, network=first, more_networks=tuple(more)), ports=ports)


def test_an_address_is_one_vms_until_it_is_given_back_or_released(store: Store) -> None:
    web, other = _with_ports("web", blue="10.0.0.5", green="10.1.0.5"), _with_ports("other", blue="10.0.0.5")
    for each in (web, other):
        put(store, each, claim(each, 1 if each is web else 2))
    with store.begin() as tx:
        tx.networks.take(web)
        tx.networks.claim("red.blue", "10.0.0.7")
    for lost in (other, web):
        with pytest.raises(ClaimLost), store.begin() as tx:
            tx.networks.take(lost)
    with store.begin() as tx:
        tx.networks.give(other)
        assert tx.networks.taken("red.blue", ("10.0.0.5", "10.0.0.6", "10.0.0.7")) == {"10.0.0.5", "10.0.0.7"}
        assert tx.networks.taken("red.green", ("10.0.0.5", "10.1.0.5")) == {"10.1.0.5"}
        assert [tx.networks.holder("red.blue", f"10.0.0.{number}") for number in (5, 6, 7)] == [web.id, None, None]
        tx.networks.keep(_with_ports("web", green="10.1.0.5"))
        tx.vms.remove(web.id, CLEANED)
        assert tx.networks.without_vm() == {("red.blue", "10.0.0.7"), ("red.green", "10.1.0.5")}
        tx.networks.take(other)
        tx.networks.release([("red.blue", "10.0.0.5"), ("red.green", "10.1.0.5")])
    with store.begin() as tx:
        assert tx.networks.holder("red.blue", "10.0.0.5") == other.id
        tx.networks.give(other)
        assert tx.networks.taken("red.blue", ("10.0.0.5",)) == frozenset()


def test_no_two_cards_of_a_network_have_one_hardware_address(store: Store) -> None:
    web, alike, other = (
        replace(_with_ports(name, **ports), id=str(uuid5(NAMESPACE_OID, number)))
        for name, number, ports in (
            ("web", ALIKE[0], {"blue": "10.0.0.5"}), ("alike", ALIKE[1], {"blue": "10.0.0.6", "green": "10.1.0.6"}),
            ("other", ALIKE[1], {"green": "10.1.0.6"}),
        )
    )  # fmt: skip
    for slot, each in enumerate((web, alike)):
        put(store, each, claim(each, slot))
    with store.begin() as tx:
        tx.networks.take(web)
        assert tx.networks.has_mac("red.blue", mac_address(alike.id))
        assert not tx.networks.has_mac("red.green", mac_address(alike.id))
    with pytest.raises(ClaimLost), store.begin() as tx:
        tx.networks.take(alike)
    with store.begin() as tx:
        tx.networks.take(other)
        tx.networks.give(other)
        tx.networks.keep(web)
        tx.networks.take(alike)


OVERLAY = OvnNetwork(id="o", subnets=("10.0.0.0/24", "203.0.113.0/28"), mtu=1400, dns=("192.0.2.9",),
                     search=("example.org",), dhcp=(("lease_time", "3600"),))  # fmt: skip
OVERLAYS = {
    "plain": OVERLAY,
    "joined": replace(OVERLAY, peers=(
        NetworkPeer(network="red.green", id="g", state="joined", link=3),
        NetworkPeer(network="blue.net", id="", state="asked"), NetworkPeer(network="x.net", id="x", state="offered"),
    )),
    "out": replace(OVERLAY, out=WayOut(network="outside", address="192.0.2.100")),
    "provider": replace(OVERLAY, provider=ProviderPlace(
        physical="physnet1", vlan=120, gateway="192.0.2.1", first="192.0.2.100", last="192.0.2.199")),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(OVERLAYS))
def test_all_that_a_network_of_ovn_has_is_read_as_it_was_written(store: Store, what: str) -> None:
    network = Network(name="red.blue", overlay=OVERLAYS[what])
    with store.begin() as tx:
        tx.networks.add(replace(network, overlay=OVERLAY))
        tx.networks.update(network)
    with store.read() as tx:
        assert tx.networks.find("red.blue") == network


def test_what_of_networks_counts_for_a_tenant_follows_them(store: Store) -> None:
    network = Network(name="red.blue", overlay=OVERLAY)
    floating = FloatingAddress(address="192.0.2.7", network="outside", tenant="red")
    with store.begin() as tx:
        tx.networks.add(network)
        tx.networks.update(replace(network, overlay=OVERLAYS["out"]))
        tx.floating_addresses.add(floating)
    with store.begin() as tx:
        assert tx.quotas.used("red") == {"networks": 1, "addresses": 2}
        assert list(miscounted(tx)) == []
        tx.networks.update(network)
        tx.networks.update(replace(network, overlay=OVERLAYS["out"]))
        for _ in range(2):
            tx.networks.remove(network.name)
            tx.floating_addresses.remove(floating)
    with store.read() as tx:
        assert not any(tx.quotas.used("red").values())
        assert list(miscounted(tx)) == []


def test_hosts_of_ovn_are_kept_as_they_were_last_put(store: Store) -> None:
    with store.begin() as tx:
        assert tx.networks.chassis() == ()
        for known in (KnownChassis(name="a", mappings=("p1", "p2"), gateway=True),), ():
            tx.networks.put_chassis(known)
            assert tx.networks.chassis() == known
