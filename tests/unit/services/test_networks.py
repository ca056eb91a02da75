# SPDX-License-Identifier: Apache-2.0
"""Which network a tenant means by a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Denied, InvalidInput, NoCapacity, NotFound
from orchestrator.core.hosts.bridges import Bridge, Uplink
from orchestrator.services.networks import NetworkService
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.world import host_info


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    made.services.tenancy.tenants.create("red")
    yield made
    made.store.close()


@pytest.fixture
def networks(plane: ControlPlane) -> NetworkService:
    return plane.services.networks


def refused(code: str, networks: NetworkService, name: str, tenant: str | None) -> None:
    with pytest.raises(Conflict) as caught:
        networks.add(name, None, tenant)
    assert caught.value.code == code


def test_networks_have_subnets_of_their_own(networks: NetworkService) -> None:
    one = networks.add("one", None)
    assert one.subnet == "10.88.0.0/24"
    assert networks.add("one", None) == networks.add("one", "10.88.0.0/24") == one
    assert networks.add("two", None, "red").subnet == "10.88.1.0/24"
    with pytest.raises(Conflict) as caught:
        networks.add("one", "10.89.0.0/24")
    assert caught.value.code == "network.exists"
    with pytest.raises(Conflict) as caught:
        networks.add("x", "10.88.0.0/16", "red")
    assert caught.value.code == "network.subnet_overlaps"


def test_no_name_means_two_networks_to_a_tenant(networks: NetworkService) -> None:
    networks.add("lab", None)
    networks.add("mine", None, "red")
    refused("network.exists", networks, "lab", "red")
    refused("network.exists", networks, "mine", None)
    assert networks.add("mine", None, "default").tenant == "default"
    networks.share("lab", shared=False)
    networks.add("lab", None, "red")
    with pytest.raises(Conflict) as caught:
        networks.share("lab", shared=True)
    assert caught.value.code == "network.exists"
    assert networks.usable("red", "lab").tenant == "red"


def test_a_shared_network_is_not_deleted_as_a_tenants_own(networks: NetworkService) -> None:
    networks.add("lab", None)
    with pytest.raises(Conflict) as caught:
        networks.delete("lab", "red")
    assert caught.value.code == "network.shared"
    networks.delete("lab")
    with pytest.raises(NotFound):
        networks.delete("lab")


def test_a_default_network_that_is_shared_stays_everybodys(plane: ControlPlane, networks: NetworkService) -> None:
    """As sites have it that were there before tenants had their own."""
    plane.add_host(T4_HOST)
    networks.add("default", "192.168.122.0/24")
    plane.services.vms.create(create_vm("old"))
    plane.engine.drain()
    networks.share("default", shared=False)
    assert plane.services.vms.create(create_vm("old")).existing
    plane.services.vms.create(create_vm("new"))
    plane.engine.drain()
    used = {vm.spec.name: vm.spec.network for vm in plane.services.vms.list(None)}
    assert used == {"old": "default", "new": "default.default"}


def test_a_host_that_is_given_back_loses_networks_that_were_deleted_meanwhile(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.services.networks.add("gone", None, "default")
    plane.machine(T4_HOST).networks.add("default.gone")
    plane.services.networks.delete("gone", "default")
    plane.services.hosts.remove(T4_HOST)
    plane.engine.drain()
    assert plane.machine(T4_HOST).networks == set()


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("comon", "did you mean common?"),
        ("unsharde", "did you mean unshared?"),
        ("inner", "tenant red has one: --tenant red"),
        ("iner", "did you mean inner?"),
        ("zzz", "'vgpuctl network list' shows them"),
    ],
)
def test_an_operator_who_names_no_network_is_told_which_one_was_meant(
    networks: NetworkService, asked: str, hint: str
) -> None:
    for name, tenant in (("common", None), ("unshared", None), ("inner", "red")):
        networks.add(name, None, tenant)
    networks.share("unshared", shared=False)
    for ask in (networks.delete, partial(networks.share, shared=True), partial(networks.get, everybody=True)):
        with pytest.raises(NotFound) as caught:
            ask(asked)
        assert (caught.value.code, caught.value.hint) == ("network.unknown", hint)
    for nobodys in ("unsharde", "inner", "iner"):
        with pytest.raises(NotFound) as caught:
            networks.get(nobodys, everybody=False)
        assert caught.value.hint == "'vgpuctl network list' shows them"


BR0, VLAN = Uplink(bridge="br0"), Uplink(bridge="br0", vlan=120)


def test_a_bridge_of_hosts_is_one_network(networks: NetworkService) -> None:
    office = networks.add_bridged("office", BR0, ("192.0.2.1",))
    assert (office.subnet, office.shared, office.place) == (None, True, "br0")
    assert networks.add_bridged("office", BR0, ("192.0.2.1",)) == office == networks.get("office", everybody=False)
    for name, code in (("office", "network.exists"), ("other", "network.bridge_taken")):
        with pytest.raises(Conflict) as caught:
            networks.add_bridged(name, BR0, tenant="red" if name == "other" else None)
        assert caught.value.code == code
    assert networks.add("behind", None).subnet == "10.88.0.0/24"
    networks.delete("office")
    assert networks.add_bridged("office", BR0, tenant="red").tenant == "red"


def test_a_bridge_that_is_one_tenants_is_given_and_taken_by_an_operator(networks: NetworkService) -> None:
    networks.add_bridged("office", BR0, tenant="red")
    with pytest.raises(Denied) as caught:
        networks.delete("office", "red", operator=False)
    assert caught.value.code == "network.bridged"
    assert networks.usable("red", "office").uplink == BR0
    with pytest.raises(NotFound):
        networks.usable("default", "office")
    networks.delete("office", "red")


def test_a_bridge_that_no_host_has_is_refused_with_the_reason(plane: ControlPlane, networks: NetworkService) -> None:
    """Of a site without hosts nothing is known."""
    networks.add_bridged("early", Uplink(bridge="br9"))
    plane.add_host(T4_HOST)
    plane.machine(T4_HOST).bridges = (Bridge(name="br0", kind="linux"), Bridge(name="br-int", kind="openvswitch"))
    plane.look(T4_HOST)
    for uplink, code in ((VLAN, "host.no_bridge"), (Uplink(bridge="br-int"), "host.openvswitch")):
        with pytest.raises(Conflict) as caught:
            networks.add_bridged("office", uplink)
        assert caught.value.code == code
    plane.machine(T4_HOST).bridges += (Bridge(name="br120", kind="linux", vlans=("br0.120",)),)
    plane.look(T4_HOST)
    assert networks.add_bridged("office", VLAN).place == "VLAN 120 of br0"


@pytest.mark.parametrize(
    ("bridges", "code", "message"),
    [
        ((), "host.no_bridge", "the host has no Linux bridge for br0"),
        (
            (Bridge(name="br0", kind="openvswitch"),),
            "host.openvswitch",
            "the host's br0 is of Open vSwitch, where libvirt filters nothing that a guest sends",
        ),
    ],
)
def test_a_host_that_lost_its_bridge_gives_one_answer_to_all_who_ask(
    plane: ControlPlane, networks: NetworkService, bridges: tuple[Bridge, ...], code: str, message: str
) -> None:
    plane.add_host(T4_HOST)
    networks.add_bridged("office", BR0)
    capacity = plane.services.capacity
    question, wanted = Question(profile="GRID T4-2Q", network="office"), replace(create_vm(), network="office")
    assert capacity.explain(question).explanation.fits
    assert capacity.capacity(question)[0].fits_now > 0
    plane.machine(T4_HOST).bridges = bridges
    plane.look(T4_HOST)
    assert [(one.code, one.message) for one in capacity.explain(question).explanation.reasons] == [(code, message)]
    assert capacity.capacity(question)[0].fits_now == 0
    assert {row.fits_now for row in capacity.capacity(Question(each=True, network="office"))} == {0}
    assert capacity.explain(replace(question, network="default")).explanation.fits
    for ask in (plane.services.vms.plan, plane.services.vms.create):
        with pytest.raises(NoCapacity) as caught:
            ask(wanted)
        assert [(one.code, one.message) for one in caught.value.reasons] == [(code, message)]
    assert not plane.services.vms.list(None)


def test_a_vm_on_a_bridge_is_made_where_the_bridge_is(plane: ControlPlane, networks: NetworkService) -> None:
    plane.add_host(T4_HOST)
    networks.add_bridged("office", BR0)
    plane.services.vms.create(replace(create_vm(), network="office"))
    plane.engine.drain()
    assert "office" in plane.machine(T4_HOST).networks
    assert plane.services.vms.get("default", "train").state == "running"
    with pytest.raises(Conflict) as caught:
        networks.delete("office")
    assert caught.value.code == "network.in_use"


def test_a_tenant_chooses_inside_the_range_of_the_site_and_an_operator_anywhere(networks: NetworkService) -> None:
    with pytest.raises(InvalidInput) as caught:
        networks.add("lan", "172.20.5.0/28", "red", operator=False)
    assert caught.value.code == "network.outside_range"
    assert networks.add("mine", "10.89.0.0/28", "red", operator=False).subnet == "10.89.0.0/28"
    assert networks.add("lan", "172.20.5.0/28", "red").subnet == "172.20.5.0/28"
    narrow = replace(networks, subnets=IPv4Network("192.168.64.0/20"))
    assert narrow.add("two", None, "red", operator=False).subnet == "192.168.64.0/24"


def test_a_tenant_takes_no_more_than_its_share_of_all_addresses(plane: ControlPlane, networks: NetworkService) -> None:
    refused_all = 0
    for number in range(8):
        try:
            networks.add(f"n{number}", f"10.{88 + number}.0.0/16", "red", operator=False)
        except Conflict as error:
            refused_all += error.code == "network.too_large"
    assert refused_all == 8
    for number in range(4):
        networks.add(f"n{number}", f"10.90.{4 * number}.0/22", "red", operator=False)
    with pytest.raises(Conflict) as caught:
        networks.add("one-more", "10.95.0.0/28", "red", operator=False)
    assert caught.value.code == "network.too_large"
    plane.services.tenancy.tenants.create("blue")
    with plane.store.begin() as tx:
        networks.make_default(tx, "blue")
    with pytest.raises(Conflict), plane.store.begin() as tx:
        networks.make_default(tx, "red")
    networks.add("one-more", "10.95.0.0/28", "red")


@pytest.mark.parametrize("operator", [True, False])
def test_no_network_takes_the_address_of_a_host(plane: ControlPlane, networks: NetworkService, operator: bool) -> None:
    host = replace(host_info("h").host, managed_gpus=())
    with plane.store.begin() as tx:
        tx.hosts.add(replace(host, name="there", address="10.88.0.7"))
        tx.hosts.add(replace(host, name="named", address="gpu.example.com"))
    with pytest.raises(Conflict) as caught:
        networks.add("lan", "10.88.0.0/28", "red", operator=operator)
    assert caught.value.code == "network.subnet_of_hosts"
    assert networks.add("lan", None, "red", operator=operator).subnet == "10.88.1.0/24"
