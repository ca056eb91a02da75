# SPDX-License-Identifier: Apache-2.0
"""Nobody passes for a VM of a network that it is not on: neither from outside, nor from a network that is joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.ovn.tracing import OvnTracer
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict
from orchestrator.core.northbound.networks import router_mac
from orchestrator.core.northbound.rows import row_uuid
from orchestrator.core.overlay import NewOvnNetwork, OvnNetworkChange, port_id
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.vm import Vm
from orchestrator.services.network_paths import NetworkPathService
from orchestrator.services.network_peers import change_peers
from tests.contract.test_groups_in_ovn import MaybeAway
from tests.contract.test_ways_out import OUTSIDE, create, leading_outside, refused
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm
from tests.fakes.ovn_databases import RealOvn


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    with leading_outside(tmp_path, ovn, MaybeAway(ovn)) as made:
        yield made


def test_from_outside_a_vm_is_reached_by_its_floating_address_and_by_no_other(
    plane: ControlPlane, ovn: RealOvn
) -> None:
    """By ovn-trace: what another VM on the provider network sends to the router's hardware address there."""
    plane.services.networks.share("outside", shared=True)
    plane.services.networks.change("blue", "default", None, {}, OvnNetworkChange(more_subnets=("fd00:88:1::/64",)))
    web, mate, other = create(plane, "web"), create(plane, "mate"), create(plane, "other", "outside")
    plane.services.networks.add_overlay("side", NewOvnNetwork(subnets=("10.7.0.0/24",)), "default")
    change_peers(plane.services.networks, "blue", "default", ["side"], [], operator=False)
    rule = SecurityRule(direction="in", protocol="tcp", first_port=22, last_port=22)
    plane.services.security_groups.change_rules("default", "default", [rule], [])
    floating = plane.services.floating_addresses.create("default").address
    plane.services.floating_addresses.attach("default", floating, "web")
    ports = [port_id(vm.id, 0) for vm in (web, other)]
    for port in ports:
        ovn.sbctl("lsp-bind", port, T4_HOST)
    ovn.nbctl("--wait=sb", "sync")
    with plane.store.read() as tx:
        outside, blue = (tx.networks.get(name).overlay for name in ("outside", "default.blue"))
    assert outside is not None
    assert blue is not None
    tracer = OvnTracer(southbound=(ovn.socket("southbound"),), keys=tuple)

    ends = f"eth.src == {mac_address(other.id, 0)} && eth.dst == {router_mac(f'{blue.id}/out')}"

    def is_led(source: str, to: str) -> bool:
        ip = "ip6" if ":" in to else "ip4"
        packet = (
            f'inport == "{ports[1]}" && {ends}'
            f" && {ip}.src == {source} && {ip}.dst == {to} && ip.ttl == 64 && tcp.dst == 22"
        )
        return f'output to "{ports[0]}"' in tracer.trace(str(row_uuid("Logical_Switch", outside.id)), packet)

    own, inside = other.ports[0].address, web.ports[0].address
    assert is_led(own, floating)
    assert not is_led(own, inside)
    ovn.nbctl("set", "logical_switch_port", ports[1], "port_security=[]")  # as a machine of the site's there
    ovn.nbctl("--wait=sb", "sync")
    assert is_led(own, floating)
    assert not any(
        is_led(source, floating) for source in ("10.0.0.77", "10.7.0.77")
    )  # web's network, and one it is joined with
    assert not any(is_led(source, web.ports[1].address) for source in ("2001:db8::7", mate.ports[1].address))


def _networks(plane: ControlPlane, **subnets: str) -> None:
    """``tenant_name``: its subnet."""
    for called, subnet in subnets.items():
        tenant, name = called.split("_")
        plane.services.tenancy.tenants.create(tenant)
        plane.services.networks.add_overlay(name, NewOvnNetwork(subnets=(subnet,)), tenant)


def _join(plane: ControlPlane, first: str, second: str, *, operator: bool = True) -> None:
    tenant, name = first.split("/")
    change_peers(plane.services.networks, name, tenant, [second], [], operator=operator)


def test_no_other_tenants_vm_that_is_joined_may_have_an_address_of_a_groups_member(plane: ControlPlane) -> None:
    """Groups know their members by addresses, wherever these are."""
    _networks(plane, default_wide="10.20.0.0/24", default_far="10.30.0.0/24", red_net="10.30.0.128/25")
    with pytest.raises(Conflict, match=r"10.30.0.128/25 of network net overlaps 10.30.0.0/24 of network far"):
        _join(plane, "default/wide", "red/net")
    with pytest.raises(Conflict, match=r"10.30.0.128/25 of network net overlaps a network of tenant default"):
        _join(plane, "red/net", "default/wide")
    plane.services.networks.delete("far", "default")
    _join(plane, "default/wide", "red/net")
    plane.services.networks.add_overlay("apart", NewOvnNetwork(subnets=("10.40.0.0/24",)), "default")
    add = plane.services.networks.add_overlay
    refused("network.peer_overlaps", Conflict, add, "far", NewOvnNetwork(subnets=("10.30.0.0/24",)), "default")
    more = OvnNetworkChange(more_subnets=("10.30.0.0/24",))
    refused("network.peer_overlaps", Conflict, plane.services.networks.change, "apart", "default", None, {}, more)
    add("own", NewOvnNetwork(subnets=("10.30.0.0/25",)), "red")
    change_peers(plane.services.networks, "wide", "default", [], ["red/net"], operator=False)
    add("far", NewOvnNetwork(subnets=("10.30.0.0/24",)), "default")
    _networks(plane, blue_net="192.0.2.0/25")
    refused("network.peer_overlaps", Conflict, _join, plane, "default/wide", "blue/net")


def test_no_network_of_the_site_comes_to_have_addresses_of_another_tenants_that_is_joined(plane: ControlPlane) -> None:
    _networks(plane, red_net="203.0.113.0/24")
    office = replace(
        OUTSIDE, vlan=121, subnet="203.0.113.0/25", gateway="203.0.113.1", addresses="203.0.113.8-203.0.113.9"
    )
    add = plane.services.provider_networks.add
    _join(plane, "default/blue", "red/net")
    with pytest.raises(Conflict, match=r"203.0.113.0/25 overlaps 203.0.113.0/24 of red/net, which") as met:
        add("office", office)
    assert met.value.code == "network.subnet_overlaps"
    assert "--leave" in str(met.value.hint)
    change_peers(plane.services.networks, "blue", "default", [], ["red/net"], operator=False)
    assert add("office", office).kind == "provider"


def test_a_joined_vm_reaches_what_the_rules_let_in_and_not_as_another(plane: ControlPlane, ovn: RealOvn) -> None:
    """By ovn-trace: with its own address, and with one of a third network's group member, which its port refuses."""
    _networks(plane, default_wide="10.20.0.0/24", default_third="10.40.0.0/24", red_net="10.30.0.0/24")
    _join(plane, "default/wide", "red/net")
    web, member = create(plane, "web", "wide"), create(plane, "member", "third")
    plane.services.vms.create(replace(create_vm("peer", profile="GRID T4-2Q"), network="net", tenant="red"))
    plane.engine.drain()
    peer = plane.services.vms.get("red", "peer")
    for vm in (web, member, peer):
        ovn.sbctl("lsp-bind", port_id(vm.id, 0), T4_HOST)
    with plane.store.read() as tx:
        net = tx.networks.get("red.net").overlay
    assert net is not None

    def is_led(source: str) -> bool:
        ovn.nbctl("--wait=sb", "sync")
        packet = (
            f'inport == "{port_id(peer.id, 0)}" && eth.src == {mac_address(peer.id, 0)} && '
            f"eth.dst == {router_mac(net.id)} && ip4.src == {source} && ip4.dst == {_address(web)} && ip.ttl == 64 && "
            "tcp.src == 49152 && tcp.dst == 22"
        )
        tracer = OvnTracer(southbound=(ovn.socket("southbound"),), keys=tuple)
        return f'output to "{port_id(web.id, 0)}"' in tracer.trace(str(row_uuid("Logical_Switch", net.id)), packet)

    rules = plane.services.security_groups.change_rules
    assert not any(map(is_led, (_address(peer), _address(member))))
    rules("default", "default", [SecurityRule(direction="in", protocol="tcp", remote="10.30.0.0/24")], [])
    assert [is_led(_address(vm)) for vm in (peer, member)] == [True, False]
    ovn.nbctl("set", "logical_switch_port", port_id(peer.id, 0), "port_security=[]")
    assert is_led(_address(member))  # so it was its port that refused it


def test_a_path_from_a_joined_network_is_explained(plane: ControlPlane, ovn: RealOvn) -> None:
    services = plane.services
    _networks(plane, default_wide="10.20.0.0/24", default_third="10.40.0.0/24")
    web, member = create(plane, "web", "wide"), create(plane, "member", "third")
    for vm in (web, member):
        ovn.sbctl("lsp-bind", port_id(vm.id, 0), T4_HOST, "--", "set", "port_binding", port_id(vm.id, 0), "up=true")
    overlay = services.provider_networks.overlay
    tracer = OvnTracer(southbound=(ovn.socket("southbound"),), keys=tuple)
    explain = NetworkPathService(store=plane.store, tracer=tracer, overlay=overlay).explain
    refused("network.not_together", Conflict, explain, "default", "web", "member", "tcp", 22)
    _join(plane, "default/wide", "default/third", operator=False)
    wanted = SecurityRule(direction="in", protocol="tcp", first_port=80, last_port=80, remote="10.20.0.0/24")
    for says in ("in any from group default", str(wanted)):
        ovn.nbctl("--wait=sb", "sync")
        path = explain("default", "web", "member", "tcp", 80)
        assert (path.network, path.receiver_network, path.arrives) == ("wide", "third", True)
        assert (path.sender, path.receiver) == (_address(web), _address(member))
        assert [str(each.rule) for each in path.judgements] == ["out any", says]
        services.security_groups.create("default", "web", [wanted])
        services.security_groups.change_uses("default", "web", [NamedUse(vm="member")], [])


def _address(vm: Vm) -> str:
    return vm.ports[0].address
