# SPDX-License-Identifier: Apache-2.0
"""NAT networks of hosts that become networks of kind ovn, with OVN's own northbound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, QuotaExceeded, VgpuctlError
from orchestrator.core.hosts.bridges import Bridge, Uplink
from orchestrator.core.overlay import NewOvnNetwork, OvnNetwork, OvnNetworkChange, ProviderPlace, port_id
from orchestrator.core.security_groups import NamedUse
from orchestrator.core.vms.network import Network, dhcp_addresses
from orchestrator.services.network_peers import change_peers
from orchestrator.services.vms.converting import convert
from orchestrator.store.transaction import Transaction
from tests.contract.test_ovn_networks import _create, _differ, northbound, plane
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm
from tests.fakes.ovn_databases import RealOvn
from tests.fakes.recount import miscounted

__all__ = ("northbound", "plane")
RANGE = "10.90.1.0/24"


def _kept(vm_id: str) -> str:
    """What its host keeps for its first card."""
    return next(dhcp_addresses("10.90.1.2", "10.90.1.254", mac_address(vm_id)))


def _network(plane: ControlPlane) -> Network:
    return plane.services.networks.usable("default", "blue")


def _overlay(plane: ControlPlane) -> OvnNetwork:
    overlay = _network(plane).overlay
    assert overlay is not None
    return overlay


def _add_provider(plane: ControlPlane, name: str) -> None:
    place = ProviderPlace(physical="physnet1", vlan=None, gateway="192.0.2.1", first="192.0.2.9", last="192.0.2.90")
    with plane.store.begin() as tx:
        tx.networks.add(Network(name=name, overlay=OvnNetwork(id=name, subnets=("192.0.2.0/24",), provider=place)))


def _with_stopped_vms(plane: ControlPlane, *names: str) -> None:
    plane.services.networks.add("blue", RANGE, "default")
    for name in names:
        _create(plane, name, start=False)


def test_a_nat_network_becomes_one_over_all_hosts_and_its_vms_keep_their_addresses(
    plane: ControlPlane, ovn: RealOvn
) -> None:
    _with_stopped_vms(plane, "train", "web")
    machine = plane.machine(T4_HOST)
    assert "default.blue" in machine.networks
    begun = convert(plane.services.network_cards, "blue", "default")
    assert begun.operation is not None
    plane.services.vms.start("default", "train")  # which waits for it
    plane.engine.drain()
    assert plane.services.operations.get(begun.operation).state == "done"
    network = _network(plane)
    assert (network.kind, network.place, network.subnet) == ("ovn", RANGE, None)
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, [port.address for port in vm.ports]) == ("running", [_kept(vm.id)])
    own = f"{mac_address(vm.id)} {_kept(vm.id)}"
    assert ovn.nbctl("get", "logical_switch_port", port_id(vm.id, 0), "addresses").strip() == f'["{own}"]'
    assert "default.blue" not in machine.networks
    with plane.store.read() as tx:
        assert list(miscounted(tx)) == []
    assert convert(plane.services.network_cards, "blue", "default").existing
    plane.services.vms.start("default", "web")
    plane.engine.drain()
    assert _differ(plane) == 0


def test_what_fails_on_a_host_leaves_the_nat_network_as_it_was(plane: ControlPlane) -> None:
    _with_stopped_vms(plane, "train")
    before = plane.services.vms.get("default", "train")
    refused = Fatal("network.remove_failed", "it was not removed")
    plane.hosts.strike = lambda _, moment, name: refused if (moment, name) == ("before", "RemoveNetwork") else None
    begun = convert(plane.services.network_cards, "blue", "default")
    assert begun.operation is not None
    plane.engine.drain()
    assert plane.services.operations.get(begun.operation).state == "undone"
    assert _network(plane) == Network(name="default.blue", subnet=RANGE)
    assert replace(plane.services.vms.get("default", "train"), operation=before.operation) == before
    assert _convert_and_start(plane) == "undone"
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, vm.ports) == ("running", ())


def test_its_range_is_nobody_elses_until_it_needs_it_no_more(plane: ControlPlane) -> None:
    networks = plane.services.networks
    plane.services.tenancy.tenants.create("other")
    own = networks.add("blue", None, "default").subnet
    _create(plane, "train", start=False)
    refused = Fatal("network.remove_failed", "it was not removed")
    plane.hosts.strike = lambda _, moment, name: refused if (moment, name) == ("before", "RemoveNetwork") else None
    begun = convert(plane.services.network_cards, "blue", "default")
    for of_it in (own, str(own).replace("/24", "/25")):
        with pytest.raises(Conflict) as taken:
            networks.add("green", of_it, "other")
        assert taken.value.code == "network.subnet_overlaps"
    assert networks.add("green", None, "other").subnet != own
    plane.engine.drain()
    assert plane.services.operations.get(str(begun.operation)).state == "undone"
    assert _network(plane) == Network(name="default.blue", subnet=own)
    plane.hosts.strike = lambda *_: None
    assert _convert_and_start(plane) == "done"
    assert networks.add("red", own, "other").subnet == own


def test_no_vm_comes_on_a_network_while_it_is_converted(plane: ControlPlane) -> None:
    """Hosts would be given definitions of VMs that are not there yet, and of some that never come."""
    _with_stopped_vms(plane, "train")
    _create(plane, "web", start=False, network="default")
    begun = convert(plane.services.network_cards, "blue", "default")
    new = replace(create_vm("new"), network="blue")
    for comes in (
        lambda: plane.services.vms.create(new),
        lambda: plane.services.vms.plan(new),
        lambda: plane.services.network_cards.attach("default", "web", "blue"),
    ):
        with pytest.raises(Conflict, match="network blue is not of kind ovn on its hosts yet") as no:
            comes()
        assert no.value.code == "network.converting"
        assert str(begun.operation) in str(no.value.hint)
    plane.engine.drain()
    assert plane.services.operations.get(str(begun.operation)).state == "done"
    plane.services.vms.create(new)
    plane.services.network_cards.attach("default", "web", "blue")
    plane.engine.drain()
    assert [len(plane.services.vms.get("default", name).ports) for name in ("new", "web")] == [1, 1]


def test_what_a_conversion_could_not_take_back_waits_until_it_is_over(plane: ControlPlane) -> None:
    """A NAT network that has it again would keep to no group, and has no DHCP options."""
    _add_provider(plane, "office")
    _with_stopped_vms(plane, "train")
    plane.services.networks.add_overlay("wide", NewOvnNetwork(subnets=("10.20.0.0/24",)), "default")
    floating = plane.services.floating_addresses
    address = floating.create("default", "office").address
    groups, change = plane.services.security_groups, OvnNetworkChange(flow_log="all")
    groups.create("default", "web")
    begun = convert(plane.services.network_cards, "blue", "default", "office")
    acts: tuple[Callable[[], object], ...] = (
        lambda: floating.attach("default", address, "train"),
        lambda: change_peers(plane.services.networks, "blue", "default", ["wide"], [], operator=False),
        lambda: change_peers(plane.services.networks, "wide", "default", ["blue"], [], operator=False),
        lambda: groups.change_uses("default", "web", [NamedUse(vm="train")]),
        lambda: groups.change_uses("default", "web", [NamedUse(network="blue")]),
        lambda: plane.services.networks.change("blue", "default", None, {}, change),
    )
    for act in acts:
        with pytest.raises(Conflict, match="network blue is not of kind ovn on its hosts yet") as no:
            act()
        assert no.value.code == "network.converting"
        assert str(begun.operation) in str(no.value.hint)
    plane.engine.drain()
    for act in acts:
        act()
    assert floating.list(("default",))[0].vm == "train"
    assert [peer.network for peer in _overlay(plane).peers] == ["default.wide"]


def test_who_is_made_while_a_conversion_begins_is_planned_anew(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without VMs it is over at once."""
    _with_stopped_vms(plane)
    claim = plane.store.claim

    def meanwhile() -> AbstractContextManager[Transaction]:
        monkeypatch.setattr(plane.store, "claim", claim)
        convert(plane.services.network_cards, "blue", "default")
        return claim()

    monkeypatch.setattr(plane.store, "claim", meanwhile)
    vm = _create(plane, "new")
    assert (vm.state, [port.network for port in vm.ports]) == ("running", ["default.blue"])


def _convert_and_start(plane: ControlPlane) -> str:
    """At once; how the former ended."""
    begun = convert(plane.services.network_cards, "blue", "default")
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    return plane.services.operations.get(str(begun.operation)).state


def test_a_network_without_vms_is_converted_at_once_with_a_way_out(plane: ControlPlane) -> None:
    _add_provider(plane, "office")
    _with_stopped_vms(plane)
    cards = plane.services.network_cards
    plane.services.tenancy.quotas.change("default", {"addresses": 0})
    with pytest.raises(QuotaExceeded):
        convert(cards, "blue", "default", "office")
    plane.services.tenancy.quotas.change("default", {"addresses": 1})
    assert convert(cards, "blue", "default", "office").operation is None
    out = _overlay(plane).out
    assert out is not None
    assert out.network == "office"
    assert convert(cards, "blue", "default", "office").existing
    for other in (None, "no-such"):
        with pytest.raises(Conflict, match="network blue is of kind ovn and leads outside through office"):
            convert(cards, "blue", "default", other)


def test_what_cannot_be_converted_is_refused_by_name_and_stays(plane: ControlPlane) -> None:
    networks = plane.services.networks
    networks.add("blue", RANGE, "default")
    networks.add("site", "10.90.2.0/24")
    plane.machine(T4_HOST).bridges = (*plane.machine(T4_HOST).bridges, Bridge(name="br0", kind="linux"))
    plane.observer.observe(T4_HOST)
    networks.add_bridged("office", Uplink(bridge="br0"), tenant="default")
    _create(plane, "runs")
    cards = plane.services.network_cards
    away = replace(cards, networks=replace(networks, in_ovn=replace(networks.in_ovn, northbound=None)))
    for name, asked, kind, code, named in (
        ("blue", cards, Conflict, "network.in_use", "runs"),
        ("blue", away, Conflict, "network.no_ovn", ""),
        ("site", cards, InvalidInput, "network.ovn_shared", "site"),
        ("office", cards, InvalidInput, "network.not_nat", "office"),
        ("none", cards, VgpuctlError, "network.unknown", "none"),
    ):
        with pytest.raises(kind) as refused:
            convert(asked, name, "default")
        assert refused.value.code == code
        assert named in refused.value.message
    plane.services.vms.stop("default", "runs")
    plane.engine.drain()
    plane.machine(T4_HOST).bridges = ()
    plane.observer.observe(T4_HOST)
    with pytest.raises(Conflict) as refused:
        convert(cards, "blue", "default")
    assert (refused.value.code, T4_HOST in refused.value.message, "runs" in refused.value.message) == (
        "host.no_ovn", True, True
    )  # fmt: skip
    assert _network(plane) == Network(name="default.blue", subnet=RANGE)


def test_each_vm_has_an_address_of_its_own_where_hosts_keep_one_twice(plane: ControlPlane) -> None:
    """Each host looks at its own VMs alone."""
    plane.services.networks.add("blue", "10.90.1.0/28", "default")
    vms = [_create(plane, f"vm-{number}", start=False) for number in range(6)]
    kept = [next(dhcp_addresses("10.90.1.2", "10.90.1.14", mac_address(vm.id))) for vm in vms]
    assert len(set(kept)) < len(vms)
    convert(plane.services.network_cards, "blue", "default")
    plane.engine.drain()
    given = [plane.services.vms.get("default", vm.spec.name).ports[0].address for vm in vms]
    assert len(set(given)) == len(vms)
    assert {own for own in kept if kept.count(own) == 1} <= set(given)
    assert set(kept) <= set(given)
