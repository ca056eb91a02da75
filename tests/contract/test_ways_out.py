# SPDX-License-Identifier: Apache-2.0
"""Provider networks, ways out and floating addresses, from the request to rows in OVN's own northbound; which hosts
lead outside its own southbound says."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.adapters.ansible.ssh_proxy import tcp_stream
from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.core.errors import (
    Conflict,
    InvalidInput,
    NoCapacity,
    NotFound,
    Retryable,
    Unknown,
    VgpuctlError,
)
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.host import Host
from orchestrator.core.northbound.rows import row_uuid
from orchestrator.core.overlay import NewOvnNetwork, OvnNetworkChange
from orchestrator.core.provider_networks import NewProviderNetwork
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.host import ByteStream, HostLink
from orchestrator.services.guests.guests import GuestPorts
from orchestrator.services.northbound import NorthboundKeeper, compare
from orchestrator.services.provider_networks import ProviderNetworkService
from tests.contract.test_groups_in_ovn import MaybeAway
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.ovn_databases import RealOvn
from tests.fakes.ports import own_port

OUTSIDE = NewProviderNetwork(
    physical="physnet1", vlan=120, subnet="192.0.2.0/24", gateway="192.0.2.1", addresses="192.0.2.100-192.0.2.103"
)
BLUE = NewOvnNetwork(subnets=("10.0.0.0/24", "10.0.1.0/24"))


@pytest.fixture
def northbound(ovn: RealOvn) -> MaybeAway:
    return MaybeAway(ovn)


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn, northbound: MaybeAway) -> Iterator[ControlPlane]:
    with leading_outside(tmp_path, ovn, northbound) as made:
        yield made


@contextmanager
def leading_outside(tmp_path: Path, ovn: RealOvn, northbound: MaybeAway) -> Iterator[ControlPlane]:
    """The host with T4s leads outside, and the other one does not."""
    for name, number in ((T4_HOST, 1), (L40S_HOST, 2)):
        ovn.sbctl("--may-exist", "chassis-add", name, "geneve", f"192.0.2.{number}")
        ovn.sbctl("clear", "chassis", name, "other_config")
    ovn.sbctl("set", "chassis", T4_HOST, "other_config:ovn-bridge-mappings=physnet1:br-ex")
    overlay = OvnDatabases(
        northbound=(ovn.socket("northbound"),), southbound=(ovn.socket("southbound"),), trust=lambda: None
    )
    made = control_plane(tmp_path, northbound=northbound, overlay=overlay)
    for host in (T4_HOST, L40S_HOST):
        made.machine(host).bridges = (Bridge(name="br-int", kind="openvswitch"),)
        made.add_host(host)
    made.services.provider_networks.add("outside", OUTSIDE)
    made.services.networks.add_overlay("blue", BLUE, "default", "outside")
    yield made
    made.store.close()
    for name in (T4_HOST, L40S_HOST):
        ovn.sbctl("--if-exists", "chassis-del", name)


def create(plane: ControlPlane, name: str, network: str = "blue", **members: Any) -> Vm:
    plane.services.vms.create(replace(create_vm(name, profile="GRID T4-2Q"), network=network, **members))
    plane.engine.drain()
    return plane.services.vms.get("default", name)


def differ(plane: ControlPlane) -> list[str]:
    assert plane.world.northbound is not None
    with plane.world.northbound.open() as session:
        return [change.words for change in compare(plane.store, session)]


def repair(plane: ControlPlane, overlay: OvnDatabases | None = None) -> None:
    assert plane.world.northbound is not None
    NorthboundKeeper(
        store=plane.store, northbound=plane.world.northbound, clock=plane.world.clock, leads=lambda: True,
        overlay=overlay,
    ).repair()  # fmt: skip


def nats(ovn: RealOvn) -> set[str]:
    rows = ovn.nbctl("--bare", "--no-headings", "--format=csv", "--columns=type,external_ip,logical_ip", "list", "nat")
    return set(rows.split())


def refused(code: str, kind: type[VgpuctlError], act: Any, *words: Any) -> None:
    with pytest.raises(kind) as error:
        act(*words)
    assert error.value.code == code


def test_a_network_has_a_router_outside_from_its_first_vm_on(plane: ControlPlane, ovn: RealOvn) -> None:
    assert ovn.nbctl("list", "nat") == ""
    vm = create(plane, "web")
    address = next(known.overlay.out.address for known in plane.services.networks.list()
                   if known.overlay is not None and known.overlay.out is not None)  # fmt: skip
    assert nats(ovn) == {f"snat,{address},{subnet}" for subnet in BLUE.subnets}
    assert "192.0.2.1" in ovn.nbctl("lr-route-list", "default.blue")
    assert T4_HOST in ovn.nbctl("--bare", "--columns=chassis_name", "list", "gateway_chassis")
    assert ovn.nbctl("--bare", "--columns=tag", "find", "logical_switch_port", "type=localnet").strip() == "120"
    options = ovn.nbctl("--bare", "--columns=options", "list", "dhcp_options")
    assert {"router=10.0.0.1", "router=10.0.1.1", "router=192.0.2.1"} <= set(options.split())
    assert "classless" not in options
    assert differ(plane) == []
    plane.services.vms.delete("default", vm.spec.name)
    plane.engine.drain()
    plane.services.networks.delete("blue", "default")
    repair(plane)
    assert ovn.nbctl("list", "nat") + ovn.nbctl("list", "gateway_chassis") == ""
    assert ovn.nbctl("--bare", "--columns=name", "list", "logical_switch").split() == ["outside"]
    with plane.store.read() as tx:
        assert tx.networks.taken("outside", (address,)) == frozenset()


def test_a_floating_address_leads_from_vm_to_vm_and_stays_its_tenants(plane: ControlPlane, ovn: RealOvn) -> None:
    floating = plane.services.floating_addresses
    web, db = create(plane, "web"), create(plane, "db")
    address = floating.create("default").address
    assert floating.create("default", address=address).address == address
    for vm in (web, db):
        for _ in range(2):
            info = floating.attach("default", address, vm.spec.name)
            assert (info.vm, info.vm_network) == (vm.spec.name, "blue")
        assert {row for row in nats(ovn) if row.startswith("dnat")} == {
            f"dnat_and_snat,{address},{vm.ports[0].address}"
        }
        assert differ(plane) == []
    second = floating.create("default").address
    refused("address.vm_has_one", Conflict, floating.attach, "default", second, "db")
    refused("address.in_use", Conflict, floating.delete, "default", address)
    plane.services.vms.stop("default", "db")
    plane.engine.drain()
    assert [each.vm for each in floating.list(("default",)) if each.address == address] == ["db"]
    plane.services.vms.delete("default", "db")
    plane.engine.drain()
    assert {(each.address, each.vm) for each in floating.list(None)} == {(address, None), (second, None)}
    assert not any(row.startswith("dnat") for row in nats(ovn))
    floating.attach("default", address, "web")
    assert floating.detach("default", address).vm is None
    assert not any(row.startswith("dnat") for row in nats(ovn))
    for each in (address, second):
        floating.delete("default", each)
    assert floating.list(None) == ()
    assert differ(plane) == []


def test_it_leads_to_another_network_by_the_router_of_that(plane: ControlPlane, ovn: RealOvn) -> None:
    plane.services.networks.add_overlay("red", BLUE, "default", "outside")
    create(plane, "web")
    both = create(plane, "db", "red")
    floating = plane.services.floating_addresses
    address = floating.create("default").address
    for name in ("web", "db", "web"):
        floating.attach("default", address, name)
        assert differ(plane) == []
    assert sum(row.startswith("dnat") for row in nats(ovn)) == 1
    assert both.ports[0].network == "default.red"


def test_what_cannot_lead_outside_is_refused(plane: ControlPlane) -> None:
    networks, floating = plane.services.networks, plane.services.floating_addresses
    refused("network.no_provider", NotFound, networks.add_overlay, "green", BLUE, "default", "nowhere")
    refused("network.no_provider", NotFound, networks.add_overlay, "green", BLUE, "default", "default")
    inside = NewOvnNetwork(subnets=("192.0.2.0/25",))
    refused("network.subnet_overlaps", Conflict, networks.add_overlay, "green", inside, "default", "outside")
    more = OvnNetworkChange(more_subnets=("192.0.2.128/25",))
    refused("network.subnet_overlaps", Conflict, networks.change, "blue", "default", None, {}, more)
    refused("network.exists", Conflict, networks.add_overlay, "blue", BLUE, "default")
    assert networks.add_overlay("blue", BLUE, "default", "outside").overlay is not None
    networks.add_overlay("shut", NewOvnNetwork(subnets=("10.9.0.0/24",)), "default")
    create(plane, "alone", "shut")
    address = floating.create("default").address
    refused("address.no_card", Conflict, floating.attach, "default", address, "alone")
    refused("vm.unknown", NotFound, floating.attach, "default", address, "nobody")


WRONG: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mapping": ("network.mapping_invalid", {"physical": "-x"}),
    "vlan": ("network.vlan_invalid", {"vlan": 4095}),
    "subnet": ("network.subnet_invalid", {"subnet": "192.0.2.0"}),
    "gateway outside": ("network.gateway_invalid", {"gateway": "192.0.3.1"}),
    "gateway in the range": ("network.gateway_invalid", {"gateway": "192.0.2.101"}),
    "range outside": ("network.range_invalid", {"addresses": "192.0.2.100-192.0.3.1"}),
    "range backwards": ("network.range_invalid", {"addresses": "192.0.2.103-192.0.2.100"}),
    "no range": ("network.range_invalid", {"addresses": "all"}),
    "with the last address": ("network.range_invalid", {"addresses": "192.0.2.100-192.0.2.255"}),
    "mtu": ("network.mtu_invalid", {"mtu": 3}),
    "no host has it": ("host.no_mapping", {"physical": "physnet2"}),
    "it overlaps": ("network.subnet_overlaps", {"vlan": 7}),
    "the tag is taken": ("network.bridge_taken", {
        "subnet": "198.51.100.0/24", "gateway": "198.51.100.1", "addresses": "198.51.100.9"}),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(WRONG))
def test_a_provider_network_that_cannot_be_is_refused(plane: ControlPlane, what: str) -> None:
    code, members = WRONG[what]
    before = plane.services.networks.list()
    refused(code, VgpuctlError, plane.services.provider_networks.add, "other", replace(OUTSIDE, **members))
    assert plane.services.networks.list() == before
    assert plane.services.provider_networks.add("outside", OUTSIDE) in before


def test_a_vm_is_on_a_provider_network_once_it_is_shared_and_where_it_leads(plane: ControlPlane, ovn: RealOvn) -> None:
    with pytest.raises(NotFound):
        create(plane, "straight", "outside")
    plane.services.networks.share("outside", shared=True)
    with pytest.raises(NoCapacity) as error:
        create(plane, "straight", "outside", host=L40S_HOST, profile="NVIDIA L40S-4Q")
    assert "host.no_mapping" in [reason.code for reason in error.value.reasons or ()]
    with pytest.raises(InvalidInput):
        create(plane, "straight", "outside", addresses={"outside": "192.0.2.9"})
    vm = create(plane, "straight", "outside")
    assert vm.host == T4_HOST
    assert vm.ports[0].address in {f"192.0.2.{number}" for number in range(100, 104)}
    repair(plane)  # the other network has no VM yet
    assert differ(plane) == []
    with plane.store.read() as tx:
        assert len(tx.networks.taken("outside", tuple(f"192.0.2.{number}" for number in range(100, 104)))) == 2


def test_gateways_are_those_that_the_southbound_has_now(plane: ControlPlane, ovn: RealOvn) -> None:
    create(plane, "web")
    service = plane.services.provider_networks
    assert isinstance(service, ProviderNetworkService)
    assert isinstance(service.overlay, OvnDatabases)
    ovn.sbctl("set", "chassis", L40S_HOST, "other_config:ovn-bridge-mappings=physnet1:br-ex",
              "other_config:ovn-cms-options=enable-chassis-as-gw")  # fmt: skip
    repair(plane, service.overlay)
    assert ovn.nbctl("--bare", "--columns=chassis_name", "list", "gateway_chassis").split() == [L40S_HOST]
    for name in (T4_HOST, L40S_HOST):
        ovn.sbctl("chassis-del", name)
    repair(plane, service.overlay)
    assert ovn.nbctl("--bare", "--columns=chassis_name", "list", "gateway_chassis").split() == [L40S_HOST]


def test_a_card_comes_where_its_host_leads_and_goes_when_no_address_leads_there(
    plane: ControlPlane, ovn: RealOvn
) -> None:
    plane.services.networks.share("outside", shared=True)
    plane.services.networks.add_overlay("green", NewOvnNetwork(subnets=("10.5.0.0/24",)), "default")
    create(plane, "web", "green")
    cards, floating = plane.services.network_cards, plane.services.floating_addresses
    cards.attach("default", "web", "blue")
    plane.engine.drain()
    address = floating.create("default").address
    floating.attach("default", address, "web")
    refused("address.in_use", Conflict, cards.detach, "default", "web", "blue")
    floating.detach("default", address)
    assert cards.detach("default", "web", "blue").operation is not None
    plane.engine.drain()
    with plane.store.begin() as tx:
        tx.networks.put_chassis(())
    refused("host.no_mapping", Conflict, cards.attach, "default", "web", "outside")


DRIFT: Mapping[str, tuple[str, ...]] = {
    "no NAT": ("--all", "destroy", "nat", "--", "clear", "logical_router", "default.blue", "nat"),
    "no route": ("lr-route-del", "default.blue"),
    "no gateway": ("clear", "logical_router_port", "{gateway}", "gateway_chassis"),
    "another tag": ("set", "logical_switch_port", "{uplink}", "tag=7"),
    "no uplink": ("clear", "logical_switch", "outside", "ports"),
    "a route of somebody's": ("lr-route-add", "default.blue", "10.7.0.0/16", "10.0.0.9"),
}


@pytest.mark.parametrize("what", sorted(DRIFT))
def test_what_somebody_else_changed_is_put_right(plane: ControlPlane, ovn: RealOvn, what: str) -> None:
    floating = plane.services.floating_addresses
    create(plane, "web")
    floating.attach("default", floating.create("default").address, "web")
    assert differ(plane) == []
    before = nats(ovn), ovn.nbctl("--bare", "--columns=name,tag", "list", "logical_switch_port")
    with plane.store.read() as tx:
        outside, blue = (tx.networks.get(name).overlay for name in ("outside", "default.blue"))
    assert outside is not None
    assert blue is not None
    rows = {"uplink": row_uuid("Logical_Switch_Port", outside.id)}
    rows["gateway"] = row_uuid("Logical_Router_Port", f"{blue.id}/out")
    ovn.nbctl(*(word.format(**rows) for word in DRIFT[what]))
    assert (differ(plane) == []) == (what == "a route of somebody's")
    repair(plane)
    assert differ(plane) == []
    assert before[0] == nats(ovn)
    assert sorted(before[1].split()) == sorted(
        ovn.nbctl("--bare", "--columns=name,tag", "list", "logical_switch_port").split()
    )


def test_with_ovn_away_nothing_is_led_and_what_it_missed_is_written_later(
    plane: ControlPlane, ovn: RealOvn, northbound: MaybeAway
) -> None:
    floating = plane.services.floating_addresses
    create(plane, "web")
    address = floating.create("default").address
    northbound.away = True
    refused("ovn.unreachable", VgpuctlError, floating.attach, "default", address, "web")
    assert floating.list(None)[0].vm is None
    northbound.away, northbound.leaves = False, True
    refused("ovn.not_in_effect", Unknown, floating.attach, "default", address, "web")
    northbound.leaves = False
    assert floating.list(None)[0].vm == "web"
    repair(plane)
    assert any(row.startswith(f"dnat_and_snat,{address}") for row in nats(ovn))


def test_a_tenants_last_vm_that_goes_during_a_change_takes_nobodys_way_out(plane: ControlPlane, ovn: RealOvn) -> None:
    create(plane, "web")
    with plane.services.networks.in_ovn.changing("default"):
        plane.services.vms.delete("default", "web")
        plane.engine.drain()
    names = ovn.nbctl("--bare", "--columns=name", "list", "logical_switch")
    assert set(names.split()) == {"outside", "default.blue"}
    assert [words for words in differ(plane) if "missing" in words] == []


class NotOnIt:
    """A host that is on none of its VM's networks."""

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        raise Conflict("vm.no_address", f"VM {vm} has no address that host {host.name} reaches on port {port}")


def test_a_vm_is_reached_by_its_floating_address_where_its_host_is_not_on_its_network(plane: ControlPlane) -> None:
    create(plane, "web")
    floating = plane.services.floating_addresses
    address = floating.create("default").address
    with socket.create_server(("127.0.0.1", 0)) as listening:
        own, led = listening.getsockname()[1], list[str]()

        def connect(to: str, port: int) -> ByteStream:
            led.append(to)
            return tcp_stream("127.0.0.1", port)

        access = replace(plane.services.guest_access, link=cast(HostLink, NotOnIt()), connect=connect)
        refused("vm.no_address", Conflict, access.open_tcp, "default", "web", own)
        floating.attach("default", address, "web")
        web = plane.services.vms.get("default", "web")
        assert floating.by_vm() == floating.by_vm(web.id) == {web.id: (address,)}
        with closing(access.open_tcp("default", "web", own)):
            listening.accept()[0].close()
        ports = GuestPorts(store=plane.store, link=access.link, connect=connect)
        with plane.store.read() as tx, closing(ports.open_tcp(tx.hosts.get(web.host), web.id, own)):
            listening.accept()[0].close()  # as runs of roles reach it
        refused("vm.unreachable", Retryable, access.open_tcp, "default", "web", own_port())
    assert led == [address] * 3
