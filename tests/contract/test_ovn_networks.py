# SPDX-License-Identifier: Apache-2.0
"""VMs on networks of kind ovn, from the request to rows in OVN's own northbound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, VgpuctlError
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.overlay import NewOvnNetwork, OvnNetworkChange, Port, port_id
from orchestrator.core.ovn import LABEL
from orchestrator.core.peering import joined_with
from orchestrator.core.security_groups import SecurityRule
from orchestrator.core.vms.vm import Vm
from orchestrator.services.messages import CreateVm, MoveVm
from orchestrator.services.network_driver import NetworkDriverService
from orchestrator.services.network_peers import change_peers
from orchestrator.services.northbound import NorthboundKeeper, compare
from tests.contract.test_groups_in_ovn import MaybeAway
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.network_engines import nat_alone
from tests.fakes.ovn_databases import RealOvn
from tests.fakes.recount import miscounted

OVN_HOST = (Bridge(name="br-int", kind="openvswitch"),)
SMALL = NewOvnNetwork(subnets=("10.0.0.0/29",))


@pytest.fixture
def northbound(ovn: RealOvn) -> MaybeAway:
    return MaybeAway(ovn)


@pytest.fixture
def plane(tmp_path: Path, northbound: MaybeAway) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path, northbound=northbound)
    for host in (T4_HOST, L40S_HOST):
        made.machine(host).bridges = OVN_HOST if host == T4_HOST else ()
        made.add_host(host)
    yield made
    made.store.close()


def _create(plane: ControlPlane, name: str = "train", **members: Any) -> Vm:
    request = replace(create_vm(name), **{"network": "blue", **members})
    plane.services.vms.create(request)
    plane.engine.drain()
    return plane.services.vms.get(request.tenant, name)


def _ports(ovn: RealOvn) -> str:
    return ovn.nbctl("--bare", "--columns=port_security", "find", "logical_switch_port", "type!=router")


def _differ(plane: ControlPlane) -> int:
    assert plane.world.northbound is not None
    with plane.world.northbound.open() as session:
        return len(compare(plane.store, session))


def test_a_vm_has_its_port_as_long_as_it_is_there(plane: ControlPlane, ovn: RealOvn) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    vm = _create(plane)
    assert (vm.state, vm.host, [port.network for port in vm.ports]) == ("running", T4_HOST, ["default.blue"])
    assert vm.ports[0].address in _ports(ovn)
    assert "requested-chassis=t4" in ovn.nbctl("get", "logical_switch_port", port_id(vm.id, 0), "options")
    assert _differ(plane) == 0
    for act in (plane.services.vms.stop, plane.services.vms.start):
        act("default", "train")
        plane.engine.drain()
        assert plane.services.vms.get("default", "train").ports == vm.ports
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert _ports(ovn) == ""
    assert _differ(plane) == 1  # the tenant's default group, which no card is in any more
    plane.services.networks.delete("blue", "default")
    assert _differ(plane) > 0  # what is left of the network goes with the next comparison
    _keeper(plane).repair()
    assert ovn.nbctl("list", "logical_switch") == ""


def _keeper(plane: ControlPlane) -> NorthboundKeeper:
    assert plane.world.northbound is not None
    return NorthboundKeeper(
        store=plane.store, northbound=plane.world.northbound, clock=plane.world.clock, leads=lambda: True
    )


def test_addresses_are_chosen_once_and_run_out(plane: ControlPlane) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    chosen = _create(plane, addresses={"blue": "10.0.0.4"}, start=False)
    assert chosen.ports[0].address == "10.0.0.4"
    assert plane.services.vms.create(replace(_request(chosen), addresses={"blue": "10.0.0.4"})).existing
    for code, kind, wanted in (
        ("network.address_taken", Conflict, {"blue": "10.0.0.4"}),
        ("network.address_invalid", InvalidInput, {"blue": "10.0.0.1"}),
        ("network.address_invalid", InvalidInput, {"red": "10.0.0.5"}),
    ):
        with pytest.raises(kind) as refused:
            _create(plane, "other", addresses=wanted, start=False)
        assert refused.value.code == code
    with pytest.raises(Conflict):
        plane.services.vms.create(replace(_request(chosen), addresses={"blue": "10.0.0.5"}))
    addresses = {_create(plane, f"vm-{number}", start=False).ports[0].address for number in range(4)}
    assert addresses == {"10.0.0.2", "10.0.0.3", "10.0.0.5", "10.0.0.6"}
    with pytest.raises(NoCapacity, match="every address of network blue is taken") as full:
        _create(plane, "last", start=False)
    assert (full.value.code, "free within a minute" in str(full.value.hint)) == ("network.full", True)


def _request(vm: Vm) -> CreateVm:
    return replace(create_vm(vm.spec.name, start=False), network="blue")


def test_two_tenants_may_have_the_same_range(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("red")
    for tenant in ("default", "red"):
        made = plane.services.networks.add_overlay("blue", SMALL, tenant)
        assert plane.services.networks.add_overlay("blue", SMALL, tenant) == made
    with pytest.raises(Conflict) as refused:
        plane.services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.1.0.0/24",)), "red")
    assert refused.value.code == "network.exists"
    assert _create(plane, addresses={"blue": "10.0.0.2"}, start=False).ports[0].address == "10.0.0.2"
    assert _create(plane, tenant="red", addresses={"blue": "10.0.0.2"}, start=False, name="train") is not None
    assert _differ(plane) == 0


def test_a_host_without_ovn_is_no_candidate(plane: ControlPlane) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    with pytest.raises(NoCapacity) as refused:
        _create(plane, host=L40S_HOST, profile="NVIDIA L40S-4Q")
    assert "host.no_ovn" in [reason.code for reason in refused.value.reasons or ()]


@pytest.mark.parametrize(
    ("said", "why"), [({"problem": "ovn-controller does not answer"}, "ovn-controller does not answer"),
                      ({"chassis": ("gpu-9", "gpu-9.test")}, "OVN calls it gpu-9")]
)  # fmt: skip
def test_a_host_where_ovn_is_not_at_work_takes_no_more_and_is_told_of(
    plane: ControlPlane, said: dict[str, Any], why: str
) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    _create(plane)
    plane.machine(T4_HOST).bridges = (replace(OVN_HOST[0], **said),)
    plane.services.findings.observe(None)
    (finding,) = (
        each.finding for each in plane.services.findings.list(host=None) if each.finding.code == "host.no_ovn"
    )
    assert (finding.host, finding.observed) == (T4_HOST, why)
    with pytest.raises(NoCapacity) as refused:
        _create(plane, "more")
    assert {reason.code for reason in refused.value.reasons or ()} >= {"host.no_ovn"}
    plane.machine(T4_HOST).bridges = (replace(OVN_HOST[0], chassis=(T4_HOST,)),)
    plane.services.findings.observe(None)
    assert [each for each in plane.services.findings.list(host=None) if each.finding.code == "host.no_ovn"] == []
    assert _create(plane, "more").state == "running"


def test_with_the_central_away_vms_go_on_and_new_ones_say_so(
    plane: ControlPlane, ovn: RealOvn, northbound: MaybeAway
) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    running = _create(plane)
    northbound.away = True
    started = plane.services.vms.create(replace(create_vm("other"), network="blue"))
    plane.engine.drain()
    operation = plane.services.operations.get(str(started.operation))
    assert (operation.state, (operation.error or {}).get("code")) == ("undone", "ovn.unreachable")
    with plane.store.read() as tx:
        assert tx.vms.find("default", "other") is None
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    northbound.away = False
    assert running.ports[0].address in _ports(ovn)
    _keeper(plane).repair()
    assert _ports(ovn) == ""


@pytest.mark.parametrize("cold", [False, True])
def test_a_vm_that_moves_keeps_its_port_and_its_address(tmp_path: Path, ovn: RealOvn, cold: bool) -> None:
    hosts = FakeHosts({f"{name}.test": FakeMachine(machine_id=name, gpus=[t4()], bridges=OVN_HOST) for name in "ab"})
    plane = control_plane(tmp_path, hosts=hosts, northbound=MaybeAway(ovn))
    for name in "ab":
        plane.add_host(name)
    plane.services.networks.add_overlay("blue", SMALL, "default")
    vm = _create(plane, start=cold)
    plane.services.moving.move(MoveVm(name="train", tenant="default", cold=cold, force=cold))
    plane.engine.drain()
    moved = plane.services.vms.get("default", "train")
    assert moved.host != vm.host
    assert (moved.ports, moved.state) == (vm.ports, vm.state)
    options = ovn.nbctl("get", "logical_switch_port", port_id(vm.id, 0), "options")
    assert options.strip() == f"{{requested-chassis={moved.host}}}"
    assert _differ(plane) == 0
    plane.store.close()


@pytest.mark.parametrize("running", [True, False])
def test_a_card_comes_with_an_address_and_gives_it_back(plane: ControlPlane, ovn: RealOvn, running: bool) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    cards, before = plane.services.network_cards, _create(plane, network="default", start=running)
    cards.attach("default", "train", "blue", "10.0.0.4")
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, [port.address for port in vm.ports]) == (before.state, ["10.0.0.4"])
    assert vm.spec.networks == ("default.default", "default.blue")
    assert "10.0.0.4" in _ports(ovn)
    assert _differ(plane) == 0
    _refused("network.address_taken", lambda: _create(plane, "other", addresses={"blue": "10.0.0.4"}))
    cards.detach("default", "train", "blue")
    plane.engine.drain()
    after = plane.services.vms.get("default", "train")
    assert (after.state, after.ports, after.spec.networks) == (before.state, (), ("default.default",))
    assert _ports(ovn) == ""
    assert _create(plane, "other", addresses={"blue": "10.0.0.4"}).ports[0].address == "10.0.0.4"


def _refused(code: str, call: Callable[[], object]) -> None:
    with pytest.raises(VgpuctlError) as refused:
        call()
    assert refused.value.code == code


def test_a_card_that_could_not_be_attached_has_no_address(
    plane: ControlPlane, ovn: RealOvn, northbound: MaybeAway
) -> None:
    plane.services.networks.add_overlay("blue", SMALL, "default")
    attach, before = plane.services.network_cards.attach, _create(plane, network="default")
    northbound.away = True
    started = attach("default", "train", "blue", "10.0.0.4")
    plane.engine.drain()
    assert plane.services.operations.get(str(started.operation)).state == "undone"
    after = plane.services.vms.get("default", "train")
    assert (after.state, after.ports, after.spec) == (before.state, (), before.spec)
    northbound.away = False
    _keeper(plane).repair()
    assert _create(plane, "other", addresses={"blue": "10.0.0.4"}).ports[0].address == "10.0.0.4"
    _refused("network.address_invalid", lambda: attach("default", "other", "default", "10.88.0.9"))
    plane.services.vms.create(replace(create_vm("far", profile="NVIDIA L40S-12Q"), network="default"))
    plane.engine.drain()
    _refused("host.no_ovn", lambda: attach("default", "far", "blue"))
    assert _ports(ovn).split() == [_ports(ovn).split()[0], "10.0.0.4"]


def test_a_site_without_ovn_says_so(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    with pytest.raises(VgpuctlError) as refused:
        plane.services.networks.add_overlay("blue", SMALL, "default")
    assert refused.value.code == "network.no_ovn"
    plane.store.close()


def test_networks_addresses_groups_and_rules_are_counted_and_bounded(plane: ControlPlane) -> None:
    services = plane.services
    services.tenancy.tenants.create("red")
    limits = {"networks": 1, "addresses": 1, "groups": 1, "rules": 2}
    services.tenancy.quotas.change("red", limits)
    services.networks.add_overlay("blue", SMALL, "red")
    _refused("quota.exceeded", lambda: services.networks.add("green", None, "red"))
    _refused("quota.exceeded", lambda: services.networks.add_overlay("green", SMALL, "red"))
    vm = _create(plane, tenant="red", start=False)
    _refused("quota.exceeded", lambda: _create(plane, "other", tenant="red", start=False))
    web = services.security_groups.create("red", "web").group
    _refused("quota.exceeded", lambda: services.security_groups.create("red", "db"))
    services.security_groups.change_rules("red", "web", [SecurityRule(direction="in")])
    more = SecurityRule(direction="in", protocol="tcp")
    _refused("quota.exceeded", lambda: services.security_groups.change_rules("red", "web", [more]))
    services.security_groups.change_rules("red", "web", [more], web.rules)
    held = {use.resource: use.used for use in services.tenancy.quotas.get("red") if use.resource in limits}
    assert held == {"networks": 1, "addresses": 1, "groups": 1, "rules": 2}
    with plane.store.read() as tx:
        assert list(miscounted(tx)) == []
    services.vms.delete("red", vm.spec.name)
    plane.engine.drain()
    services.security_groups.delete("red", "web")
    services.networks.delete("blue", "red")
    with plane.store.read() as tx:
        assert list(miscounted(tx)) == []
        assert not any(tx.quotas.used("red").values())


RED, BLUE = NewOvnNetwork(subnets=("10.1.0.0/24",)), NewOvnNetwork(subnets=("10.2.0.0/24", "10.3.0.0/24"))


def _states(plane: ControlPlane, tenant: str, name: str) -> list[tuple[str, str]]:
    overlay = plane.services.networks.usable(tenant, name).overlay
    assert overlay is not None
    return [(peer.network, peer.state) for peer in overlay.peers]


def test_networks_are_joined_when_both_tenants_say_so_and_left_by_either(plane: ControlPlane, ovn: RealOvn) -> None:
    networks = plane.services.networks
    for tenant, wanted in (("red", RED), ("blue", BLUE)):
        plane.services.tenancy.tenants.create(tenant)
        networks.add_overlay("net", wanted, tenant)
    _create(plane, "web", tenant="red", network="net")
    db = _create(plane, "db", tenant="blue", network="net", profile="GRID T4-2Q")
    change_peers(networks, "net", "red", ["blue/net"], [], operator=False)
    assert _states(plane, "red", "net") == [("blue.net", "asked")]
    assert _states(plane, "blue", "net") == [("red.net", "offered")]
    assert ovn.nbctl("list", "logical_router_static_route") == ""
    change_peers(networks, "net", "red", ["blue/net"], [], operator=False)
    assert _states(plane, "blue", "net") == [("red.net", "offered")]
    change_peers(networks, "net", "blue", ["red/net"], [], operator=False)
    assert _states(plane, "red", "net") == [("blue.net", "joined")]
    assert _states(plane, "blue", "net") == [("red.net", "joined")]
    routes = ovn.nbctl("--bare", "--columns=ip_prefix", "list", "logical_router_static_route").split()
    assert sorted(routes) == ["10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24"]
    assert "10.3.0.0/24,10.1.0.1" in ovn.nbctl(
        "--bare", "--columns=options", "find", "dhcp_options", 'cidr="10.1.0.0/24"'
    )
    assert _differ(plane) == 0
    ovn.nbctl("--wait=sb", "sync")
    assert db.ports[0].address.startswith("10.")
    flows = ovn.sbctl("--bare", "--columns=match", "find", "logical_flow", "pipeline=ingress")
    assert "ip4.dst == 10.3.0.0/24" in flows
    more = OvnNetworkChange(more_subnets=("8.8.0.0/16",))
    _refused("network.joined", lambda: networks.change("net", "red", None, {}, more))
    change_peers(networks, "net", "blue", [], ["red/net"], operator=False)
    assert (_states(plane, "red", "net"), _states(plane, "blue", "net")) == ([], [])
    assert ovn.nbctl("list", "logical_router_static_route") == ""
    assert _differ(plane) == 0


def test_what_overlaps_anything_that_is_joined_already_is_refused_with_both_ranges(plane: ControlPlane) -> None:
    networks = plane.services.networks
    for name, subnet in (("a", "10.1.0.0/24"), ("b", "10.2.0.0/24"), ("c", "10.1.0.128/25")):
        networks.add_overlay(name, NewOvnNetwork(subnets=(subnet,)), "default")
    change_peers(networks, "a", "default", ["b"], [], operator=False)
    with pytest.raises(Conflict) as refused:
        change_peers(networks, "b", "default", ["c"], [], operator=False)
    assert refused.value.code == "network.peer_overlaps"
    assert {"10.1.0.0/24", "10.1.0.128/25"} <= set(refused.value.message.split())
    assert _states(plane, "default", "c") == []
    grown = OvnNetworkChange(more_subnets=("10.2.0.0/25",))
    _refused("network.peer_overlaps", lambda: networks.change("a", "default", None, {}, grown))
    networks.add("nat", None, "default")
    _refused("network.of_ovn", lambda: change_peers(networks, "a", "default", ["nat"], [], operator=False))
    _refused("network.unknown", lambda: change_peers(networks, "a", "default", ["nowhere"], [], operator=False))
    _refused("network.peer_itself", lambda: change_peers(networks, "a", "default", ["a"], [], operator=False))
    networks.delete("b", "default")
    networks.add_overlay("b", NewOvnNetwork(subnets=("10.1.0.0/25",)), "default")
    assert joined_with(networks.usable("default", "a"), lambda name: networks.usable("default", "b")) == ()


def test_what_others_ask_takes_no_place_and_tells_nothing(plane: ControlPlane) -> None:
    networks = plane.services.networks
    for tenant in ("evil", "worse"):
        plane.services.tenancy.tenants.create(tenant)
    for name, subnet in (("a", "10.1.0.0/24"), ("b", "10.2.0.0/24")):
        networks.add_overlay(name, NewOvnNetwork(subnets=(subnet,)), "default")
    for number in range(17):
        tenant = "evil" if number < 16 else "worse"
        networks.add_overlay(f"n{number}", NewOvnNetwork(subnets=(f"10.9.{number}.0/24",)), tenant)
        for asked in ("default/a", "default/not-there"):
            change_peers(networks, f"n{number}", tenant, [asked], [], operator=False)
    with networks.in_ovn.changing("default"):
        change_peers(networks, "n0", "evil", [f"x{number}/net" for number in range(12)], ["default/b"], operator=False)
        change_peers(networks, "n0", "evil", [], [f"x{number}/net" for number in range(12)], operator=False)
    assert _states(plane, "default", "a")[-1] == ("worse.n16", "offered")
    assert len(_states(plane, "default", "a")) == 16
    change_peers(networks, "a", "default", ["b"], [], operator=False)
    change_peers(networks, "a", "default", ["evil/n0"], [], operator=False)
    assert _states(plane, "default", "a")[:2] == [("default.b", "joined"), ("evil.n0", "joined")]
    assert ("default.a", "joined") in _states(plane, "evil", "n0")


def test_a_host_that_says_it_is_cut_off_is_told_of_though_ovn_keeps_it(plane: ControlPlane, ovn: RealOvn) -> None:
    ovn.sbctl("--may-exist", "chassis-add", T4_HOST, "geneve", "192.0.2.11")
    overlay = OvnDatabases(northbound=(), southbound=(ovn.socket("southbound"),), trust=lambda: None)
    engines = replace(nat_alone(plane.world.clock), overlay=overlay)
    driver = NetworkDriverService(store=plane.store, clock=plane.world.clock, engines=engines)
    assert ("ovn.host_cut_off", T4_HOST) not in [(each.code, each.subject) for each in driver.get().troubles]
    plane.machine(T4_HOST).bridges = (replace(OVN_HOST[0], problem="ovn-controller does not answer"),)
    plane.look(T4_HOST)
    (told,) = [each for each in driver.get().troubles if each.code == "ovn.host_cut_off"]
    assert (told.subject, told.message) == (T4_HOST, "by its own word: ovn-controller does not answer")
    assert "ovn.host_missing" in [each.code for each in driver.get().troubles]
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), labels=((LABEL, "member"),)))
    assert [each.code for each in driver.get().troubles if each.subject == L40S_HOST] == []
    plane.services.vms.create(create_vm("far", profile="NVIDIA L40S-12Q"))
    plane.engine.drain()
    with plane.store.begin() as tx:
        its = plane.services.vms.get("default", "far").id
        tx.vms.change(its, ports=(Port(network="default.blue", address="10.0.0.9"),))
    assert [each.code for each in driver.get().troubles if each.subject == L40S_HOST] == ["ovn.host_missing"]
    assert "ovn.host_cut_off" in [each.code for each in driver.get().troubles]
