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
from tests.contract.test_ways_out import create, differ, leading_outside, refused, repair
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, group_on
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
    plane.services.networks.add_overlay("apart", NewOvnNetwork(subnets=("10.9.0.0/24",)), "default")
    create(plane, "member", "apart", addresses={"apart": "10.9.0.77"})
    plane.services.networks.add_overlay("side", NewOvnNetwork(subnets=("10.7.0.0/24",)), "default")
    change_peers(plane.services.networks, "blue", "default", ["side"], [], operator=False)
    rule = SecurityRule(direction="in", protocol="tcp", first_port=22, last_port=22)
    plane.services.security_groups.change_rules("default", "default", [rule], [])
    floating = plane.services.floating_addresses.create("default").address
    plane.services.floating_addresses.attach("default", floating, "web")
    for vm in (web, other):
        ovn.sbctl("lsp-bind", port_id(vm.id, 0), T4_HOST)
    with plane.store.read() as tx:
        outside, blue = (tx.networks.get(name).overlay for name in ("outside", "default.blue"))
    assert outside is not None
    assert blue is not None

    def is_led(source: str, to: str) -> bool:
        return _led(ovn, other, source, web, router_mac(f"{blue.id}/out"), outside.id, to)

    own, inside = other.ports[0].address, web.ports[0].address
    assert is_led(own, floating)
    assert not is_led(own, inside)
    _says_what_it_likes(ovn, other)  # as a machine of the site's there
    assert is_led(own, floating)
    assert not any(
        is_led(source, floating) for source in ("10.0.0.77", "10.7.0.77")
    )  # web's network, and one it is joined with
    assert not any(is_led(source, web.ports[1].address) for source in ("2001:db8::7", mate.ports[1].address))
    plane.services.security_groups.change_rules("default", "default", [], [rule])  # its members are let in alone
    assert not is_led("10.9.0.77", floating)


def _led(ovn: RealOvn, sender: Vm, source: str, target: Vm, next_mac: str, network: str, to: str | None = None) -> bool:
    """By ovn-trace: whether what the sender's card puts on that network (UUID) as from ``source`` reaches the target's
    TCP port 22; ``to``: an address that is not its card's own."""
    ovn.nbctl("--wait=sb", "sync")
    to = to or _address(target)
    ip = "ip6" if ":" in to else "ip4"
    packet = (
        f'inport == "{port_id(sender.id, 0)}" && eth.src == {mac_address(sender.id, 0)} && eth.dst == {next_mac} && '
        f"{ip}.src == {source} && {ip}.dst == {to} && ip.ttl == 64 && tcp.src == 49152 && tcp.dst == 22"
    )
    tracer = OvnTracer(southbound=(ovn.socket("southbound"),), keys=tuple)
    return f'output to "{port_id(target.id, 0)}"' in tracer.trace(str(row_uuid("Logical_Switch", network)), packet)


def _says_what_it_likes(ovn: RealOvn, vm: Vm) -> None:
    """Its port lets out whatever addresses."""
    ovn.nbctl("set", "logical_switch_port", port_id(vm.id, 0), "port_security=[]")


def _networks(plane: ControlPlane, **subnets: str) -> None:
    """``tenant_name``: its subnet."""
    for called, subnet in subnets.items():
        tenant, name = called.split("_")
        plane.services.tenancy.tenants.create(tenant)
        plane.services.networks.add_overlay(name, NewOvnNetwork(subnets=(subnet,)), tenant)


def _join(plane: ControlPlane, first: str, second: str, *, operator: bool = True) -> None:
    tenant, name = first.split("/")
    change_peers(plane.services.networks, name, tenant, [second], [], operator=operator)


def test_a_rule_by_group_means_nobody_on_another_network_of_the_same_range(plane: ControlPlane, ovn: RealOvn) -> None:
    """web is in group trusted on the one network, and stranger has its address on the other."""
    _networks(plane, default_first="10.50.0.0/24", default_second="10.50.0.0/24")
    groups, addresses = plane.services.security_groups, {"web": "10.50.0.9", "stranger": "10.50.0.9"}
    vms = {
        name: create(plane, name, network, addresses={network: addresses.get(name, "10.50.0.10")})
        for name, network in (("web", "first"), ("mate", "first"), ("stranger", "second"), ("db", "second"))
    }
    groups.create("default", "trusted")
    groups.create("default", "shut", [SecurityRule(direction="in", group="trusted")])
    groups.change_uses("default", "trusted", [NamedUse(vm="web")])
    groups.change_uses("default", "shut", [NamedUse(vm="db"), NamedUse(vm="mate")])
    for vm in vms.values():
        ovn.sbctl("lsp-bind", port_id(vm.id, 0), T4_HOST)
    for sender, target, network, reaches in (("web", "mate", "first", True), ("stranger", "db", "second", False)):
        mac = mac_address(vms[target].id, 0)
        ends = vms[sender], addresses[sender], vms[target], mac, group_on(plane, "shut", network)[3]
        assert _led(ovn, *ends) == reaches
    groups.change_uses("default", "trusted", [NamedUse(vm="stranger")])
    assert _led(ovn, *ends)


def test_a_rule_by_group_means_members_on_the_tenants_networks_that_are_joined(
    plane: ControlPlane, ovn: RealOvn
) -> None:
    """And nobody else there: a network of another tenant has the range of a third one of the tenant's."""
    _networks(plane, default_wide="10.20.0.0/24", default_side="10.40.0.0/24")
    _networks(plane, default_third="10.30.0.0/24", red_net="10.30.0.0/24")
    web, mate = create(plane, "web", "wide"), create(plane, "mate", "side")
    member = create(plane, "member", "third", addresses={"third": "10.30.0.9"})
    plane.services.vms.create(replace(create_vm("peer", profile="GRID T4-2Q"), network="net", tenant="red"))
    plane.engine.drain()
    peer = plane.services.vms.get("red", "peer")
    for vm in (web, mate, member, peer):
        ovn.sbctl("lsp-bind", port_id(vm.id, 0), T4_HOST)
    with plane.store.read() as tx:
        side, net = (tx.networks.get(name).overlay for name in ("default.side", "red.net"))
    assert side is not None
    assert net is not None
    ways = [
        (mate, _address(mate), web, router_mac(side.id), side.id),
        (peer, "10.30.0.9", web, router_mac(net.id), net.id),
    ]
    _says_what_it_likes(ovn, peer)  # whoever it says it is
    assert [_led(ovn, *way) for way in ways] == [False, False]
    _join(plane, "default/wide", "default/side", operator=False)
    _join(plane, "default/wide", "red/net")
    _says_what_it_likes(ovn, peer)
    assert [_led(ovn, *way) for way in ways] == [True, False]
    repair(plane)
    assert differ(plane) == []
    change_peers(plane.services.networks, "wide", "default", [], ["side"], operator=False)
    assert [_led(ovn, *way) for way in ways] == [False, False]


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
        return _led(ovn, peer, source, web, router_mac(net.id), net.id)

    rules = plane.services.security_groups.change_rules
    assert not any(map(is_led, (_address(peer), _address(member))))
    rules("default", "default", [SecurityRule(direction="in", protocol="tcp", remote="10.30.0.0/24")], [])
    assert [is_led(_address(vm)) for vm in (peer, member)] == [True, False]
    _says_what_it_likes(ovn, peer)
    assert not is_led(_address(member))
    rules("default", "default", [SecurityRule(direction="in", protocol="tcp")], [])
    assert is_led(_address(member))  # so it was its port that refused it, and then that it is no member here


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
