# SPDX-License-Identifier: Apache-2.0
"""Addresses of IPv6 on networks of kind ovn, from the request to the guest's seed and OVN's own northbound."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from orchestrator.adapters.ovn.tracing import OvnTracer
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput, VgpuctlError
from orchestrator.core.northbound.rows import row_uuid
from orchestrator.core.overlay import NewOvnNetwork, OvnNetwork, OvnNetworkChange, Port, ProviderPlace, port_id
from orchestrator.core.provider_networks import NewProviderNetwork
from orchestrator.core.security_groups import NamedUse
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.services.network_peers import change_peers
from tests.contract.test_ovn_networks import _create, _differ, northbound, plane
from tests.fakes.control_plane import ControlPlane, create_vm
from tests.fakes.fake_world import FakeSeeds
from tests.fakes.ovn_databases import RealOvn
from tests.fakes.recount import miscounted

__all__ = ("northbound", "plane")
DUAL = NewOvnNetwork(subnets=("10.0.0.0/29", "fd00:88:1::/64"))
OWN = NewProviderNetwork(
    physical="physnet1", vlan=None, subnet="fd00:9::/64", gateway="fd00:9::1", addresses="fd00:9::2-fd00:9::9"
)


def _addresses(vm: Vm) -> list[str]:
    return [port.address for port in vm.ports]


def _get(ovn: RealOvn, vm: Vm, column: str) -> str:
    return ovn.nbctl("get", "logical_switch_port", port_id(vm.id, 0), column).strip()


def test_a_card_has_an_address_of_each_family_for_its_vms_life(plane: ControlPlane, ovn: RealOvn) -> None:
    plane.services.networks.add_overlay("blue", DUAL, "default")
    vm = _create(plane)
    first, second = _addresses(vm)
    assert ip_address(first) in ip_network("10.0.0.0/29")
    assert ip_address(second) in ip_network("fd00:88:1::/64")
    own = f"{mac_address(vm.id)} {first} {second}"
    assert [_get(ovn, vm, column) for column in ("addresses", "port_security")] == [f'["{own}"]'] * 2
    told = ovn.nbctl("dhcp-options-get-options", _get(ovn, vm, "dhcpv6_options")).split()
    assert {"dns_server={fd00:88:1::1}", 'domain_search="blue.default.internal"'} <= set(told)
    assert f"train={first} {second} " in ovn.nbctl("--bare", "--columns=records", "list", "dns")
    for act in (plane.services.vms.stop, plane.services.vms.start):
        act("default", "train")
        plane.engine.drain()
    assert plane.services.vms.get("default", "train").ports == vm.ports
    assert _differ(plane) == 0
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.read() as tx:
        assert not tx.networks.taken("default.blue", (first, second))


def test_the_guest_asks_for_an_address_of_ipv6_where_its_card_has_one(plane: ControlPlane) -> None:
    plane.services.networks.add_overlay("blue", DUAL, "default")
    plane.services.networks.add_overlay("old", NewOvnNetwork(subnets=("10.0.1.0/24",)), "default")
    vm = _create(plane, more_networks=("old",))
    assert isinstance(plane.world.seeds, FakeSeeds)
    (seed,) = plane.world.seeds.built
    assert seed.cards == (mac_address(vm.id, 0), mac_address(vm.id, 1))
    assert seed.cards_of_ipv6 == {mac_address(vm.id, 0)}


def test_addresses_are_chosen_of_either_family_or_both(plane: ControlPlane) -> None:
    plane.services.networks.add_overlay("blue", DUAL, "default")
    both = {"blue": "fd00:88:1::5,10.0.0.4"}
    vm = _create(plane, addresses=both, start=False)
    assert _addresses(vm) == ["10.0.0.4", "fd00:88:1::5"]
    for again in (both, {"blue": "fd00:88:1::5"}):
        request = replace(create_vm("train", start=False), network="blue", addresses=again)
        assert plane.services.vms.create(request).existing
    assert _addresses(_create(plane, "web", addresses={"blue": "fd00:88:1::6"}, start=False))[1] == "fd00:88:1::6"
    refused: dict[str, str] = {
        "fd00:88:1::5": "network.address_taken",
        "fd00:88:1::": "network.address_invalid",
        "fd00:88:1::1": "network.address_invalid",
        "fd00:88:2::5": "network.address_invalid",
        "FD00:88:1::7": "network.address_invalid",
        'fd00:88:1::7%"; drop': "network.address_invalid",
        "fd00:88:1::7,fd00:88:1::8": "network.address_invalid",
        "10.0.0.6,": "network.address_invalid",
    }
    for address, code in refused.items():
        with pytest.raises(VgpuctlError) as error:
            _create(plane, "other", addresses={"blue": address}, start=False)
        assert error.value.code == code, address


def test_a_card_that_comes_later_has_both_and_gives_both_back(plane: ControlPlane) -> None:
    plane.services.networks.add_overlay("blue", DUAL, "default")
    plane.services.networks.add_overlay("wide", replace(DUAL, subnets=("10.2.0.0/24", "fd00:88:2::/64")), "default")
    before = _create(plane)
    plane.services.network_cards.attach("default", "train", "wide", "fd00:88:2::9")
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    assert vm.ports[3:] == (Port(network="default.wide", address="fd00:88:2::9"),)
    assert vm.ports[:2] == before.ports
    plane.services.network_cards.detach("default", "train", "wide")
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").ports == before.ports
    with plane.store.read() as tx:
        assert not tx.networks.taken("default.wide", ("fd00:88:2::9", vm.ports[2].address))
        assert list(miscounted(tx)) == []


def test_a_network_of_ipv6_alone_is_one(plane: ControlPlane, ovn: RealOvn) -> None:
    plane.services.networks.add_overlay("blue", NewOvnNetwork(subnets=("2001:db8:1::/64",)), "default")
    vm = _create(plane)
    (address,) = _addresses(vm)
    assert _get(ovn, vm, "port_security") == f'["{mac_address(vm.id)} {address}"]'
    assert _get(ovn, vm, "dhcpv4_options") == "[]"
    assert _differ(plane) == 0


def test_a_card_that_may_send_nothing_asks_for_its_addresses_and_sends_nowhere_else(
    plane: ControlPlane, ovn: RealOvn
) -> None:
    network, groups = plane.services.networks.add_overlay("blue", DUAL, "default"), plane.services.security_groups
    vm = _create(plane, addresses={"blue": "10.0.0.4,fd00:88:1::5"})
    groups.create("default", "shut", [])
    groups.change_uses("default", "shut", [NamedUse(vm="train")])
    assert network.overlay is not None
    tracer, switch = OvnTracer(southbound=(ovn.socket("southbound"),), keys=tuple), network.overlay.id
    ovn.nbctl("--wait=sb", "--timeout=30", "sync")

    def is_answered(source: str, target: str, ports: str) -> bool:
        packet = f'inport == "{port_id(vm.id, 0)}" && eth.src == {mac_address(vm.id)} && eth.dst == ff:ff:ff:ff:ff:ff'
        version = 6 if ":" in target else 4
        words = f" && ip{version}.src == {source} && ip{version}.dst == {target} && ip.ttl == 64 && {ports}"
        trace = tracer.trace(str(row_uuid("Logical_Switch", switch)), packet + words)
        assert ("put_dhcp" in trace) != ("acl" in trace.splitlines()[-2]), trace
        return "put_dhcp" in trace

    ports = "udp.src == 68 && udp.dst == 67"
    assert is_answered("0.0.0.0", "255.255.255.255", ports)
    assert is_answered("10.0.0.4", "10.0.0.1", ports)
    assert not is_answered("10.0.0.4", "8.8.8.8", ports)
    ports = "udp.src == 546 && udp.dst == 547"
    assert is_answered("fd00:88:1::5", "ff02::1:2", ports)
    assert not is_answered("fd00:88:1::5", "2001:db8::7", ports)


@pytest.mark.parametrize("subnet", [
    "fd00:88::/63", "fd00:88::/65", "fe80::/64", "ff02::/64", "::/64", "64:ff9b::/64", "fd00:88::1/64",
    "fd00:88:0::/64",
])  # fmt: skip
def test_what_is_no_subnet_of_ipv6_for_vms_is_refused(plane: ControlPlane, subnet: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        plane.services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.0.0.0/24", subnet)), "default")
    assert refused.value.code == "network.subnet_invalid"


def test_nothing_of_ipv6_leads_outside(plane: ControlPlane) -> None:
    with pytest.raises(InvalidInput) as refused:
        plane.services.provider_networks.add("office", OWN)
    assert refused.value.code == "network.subnet_invalid"
    place = ProviderPlace(physical="physnet1", vlan=None, gateway="192.0.2.1", first="192.0.2.9", last="192.0.2.90")
    office = OvnNetwork(id="office", subnets=("192.0.2.0/24",), provider=place)
    with plane.store.begin() as tx:
        tx.networks.add(Network(name="office", overlay=office))
    only = NewOvnNetwork(subnets=("fd00:88:1::/64",))
    with pytest.raises(InvalidInput) as refused:
        plane.services.networks.add_overlay("blue", only, "default", "office")
    assert (refused.value.code, refused.value.message) == (
        "network.subnet_invalid", "IPv6 does not lead outside so far"
    )  # fmt: skip
    plane.services.networks.add_overlay("blue", DUAL, "default", "office")


def test_ranges_of_ipv6_that_overlap_are_not_joined(plane: ControlPlane, ovn: RealOvn) -> None:
    names: dict[str, Any] = {"blue": ("10.0.0.0/29", "fd00:1::/64"), "red": ("10.1.0.0/24", "fd00:1::/64"),
                             "grey": ("10.2.0.0/24", "fd00:2::/64")}  # fmt: skip
    for name, subnets in names.items():
        plane.services.networks.add_overlay(name, NewOvnNetwork(subnets=subnets), "default")
    with pytest.raises(Conflict) as refused:
        change_peers(plane.services.networks, "blue", "default", ["red"], [], operator=False)
    assert refused.value.code == "network.peer_overlaps"
    assert "fd00:1::/64" in refused.value.message
    change_peers(plane.services.networks, "blue", "default", ["grey"], [], operator=False)
    change = OvnNetworkChange(more_subnets=("fd00:1::/64",))
    with pytest.raises(Conflict):
        plane.services.networks.change("grey", "default", None, {}, change)
    _create(plane)
    assert "fd00:2::/64" in ovn.nbctl("--bare", "--columns=ip_prefix", "list", "logical_router_static_route")
    assert _differ(plane) > 0  # the other network, which no VM is on yet
