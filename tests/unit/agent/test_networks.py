# SPDX-License-Identifier: Apache-2.0
"""Networks that the server has deleted, and whose names and addresses others got since."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs.bridges import host_routes
from orchestrator.core.actions.host_actions import DefineDomain, EnsureNetwork, RemoveNetwork, UndefineDomain
from orchestrator.core.errors import Conflict, InvalidInput
from tests.unit.agent.bench import Bench, domain_of

MINE, OTHERS = "10.88.0.0/24", "10.88.1.0/24"


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    return furnished


def networks(bench: Bench) -> set[str]:
    return {one.name() for one in bench.libvirt.listAllNetworks() if one.isActive()}


def subnet_of(bench: Bench, name: str) -> str:
    return str(bench.libvirt.networkLookupByName(name).XMLDesc())


def test_a_network_that_no_vm_has_makes_room_for_another_with_its_addresses(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="default.gone", subnet=MINE))
    bench.do(EnsureNetwork(name="default.stays", subnet=OTHERS))
    assert bench.do(EnsureNetwork(name="red.new", subnet=MINE)).changed
    assert networks(bench) == {"default", "default.stays", "red.new"}
    assert not bench.do(RemoveNetwork(name="default.gone")).changed


def test_a_network_that_was_made_anew_gets_its_new_addresses(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="default.blue", subnet=MINE))
    assert not bench.do(EnsureNetwork(name="default.blue", subnet=MINE)).changed
    assert bench.do(EnsureNetwork(name="default.blue", subnet=OTHERS)).changed
    assert "10.88.1.1" in subnet_of(bench, "default.blue")


def test_a_network_that_a_vm_has_stays_as_it_is(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="default.blue", subnet=MINE))
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="default.blue")))
    bench.do(EnsureNetwork(name="default.blue", subnet=OTHERS))
    bench.do(EnsureNetwork(name="red.new", subnet="10.88.0.0/23"))
    assert "10.88.0.1" in subnet_of(bench, "default.blue")
    assert "default.blue" in networks(bench)


def test_a_network_of_an_older_agent_gets_its_dns_domain_when_no_vm_has_it(bench: Bench) -> None:
    action = EnsureNetwork(name="default.blue", subnet=MINE)
    bench.do(action)
    older = bench.libvirt.networkLookupByName("default.blue")
    domain = "<domain name='blue.default.internal' localOnly='yes'/>"
    assert domain in older.XMLDesc()
    older.destroy()
    bench.libvirt.networkDefineXML(older.XMLDesc().replace(domain, "")).create()
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="default.blue")))
    assert not bench.do(action).changed
    assert domain not in subnet_of(bench, "default.blue")
    bench.do(UndefineDomain(vm=bench.vm))
    assert bench.do(action).changed
    assert domain in subnet_of(bench, "default.blue")


def test_a_network_of_the_hosts_own_never_makes_room(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="red.new", subnet="192.168.0.0/16"))
    assert "default" in networks(bench)


def test_a_vm_is_on_no_network_of_another_tenant(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="red.blue", subnet=MINE))
    with pytest.raises(InvalidInput) as refused:
        bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="red.blue")))
    assert refused.value.code == "vm.domain_invalid"


ROUTES = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.88.0.0/16 2 0 2
        |-- 10.88.2.0
           /24 universe UNICAST
        |-- 10.88.9.255
           /32 link BROADCAST
     +-- 172.20.4.0/22 2 0 2
        |-- 172.20.4.0
           /22 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 128.0.0.0
        /1 universe UNICAST
     |-- 10.90.0.7
        /32 host LOCAL
"""
"""As the kernel writes them: its default route, a route by a gateway, the host's LAN, half of the internet that goes
elsewhere, and an address that no route leads to."""


@pytest.mark.parametrize("subnet", ["172.20.5.0/28", "172.20.0.0/16", "10.88.2.0/24", "10.88.2.128/28", "10.90.0.0/24"])
def test_a_network_takes_no_route_and_no_address_from_its_host(bench: Bench, subnet: str) -> None:
    bench.host.text(bench.host.paths.proc / "net/fib_trie", ROUTES)
    with pytest.raises(Conflict) as refused:
        bench.do(EnsureNetwork(name="red.new", subnet=subnet))
    assert refused.value.code == "network.overlaps_host"
    assert "tenant_subnets" in str(refused.value.hint)
    assert networks(bench) == {"default"}
    assert not bench.do(RemoveNetwork(name="red.new")).changed, "something is kept of it"


def test_a_network_beside_the_hosts_routes_is_made_and_its_own_route_is_not_in_its_way(bench: Bench) -> None:
    bench.host.text(bench.host.paths.proc / "net/fib_trie", ROUTES)
    assert bench.do(EnsureNetwork(name="red.new", subnet="10.88.9.0/24")).changed
    own = "  |-- 10.88.9.0\n     /24 link UNICAST\n  |-- 10.88.9.1\n     /32 host LOCAL\n"
    bench.host.text(bench.host.paths.proc / "net/fib_trie", ROUTES + own)
    assert not bench.do(EnsureNetwork(name="red.new", subnet="10.88.9.0/24")).changed
    assert networks(bench) == {"default", "red.new"}


def test_a_network_of_ours_that_stands_still_is_not_started_over_a_route_that_came_meanwhile(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="red.new", subnet="10.88.2.0/24"))
    bench.libvirt.networkLookupByName("red.new").destroy()
    bench.host.text(bench.host.paths.proc / "net/fib_trie", ROUTES)
    with pytest.raises(Conflict):
        bench.do(EnsureNetwork(name="red.new", subnet="10.88.2.0/24"))
    assert networks(bench) == {"default"}


def test_the_routes_of_this_very_kernel_are_read() -> None:
    there = list(host_routes(Paths(root=Path("/"), storage=Path("/"))))
    assert any(IPv4Address("127.0.0.1") in one for one in there)
    assert all(one.prefixlen >= 8 for one in there)
