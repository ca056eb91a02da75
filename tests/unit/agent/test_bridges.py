# SPDX-License-Identifier: Apache-2.0
"""Networks on bridges that a host has by itself: which there are, what is put on them, and what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.agent.sysfs.bridges import HostBridges, driver_of
from orchestrator.core.actions.host_actions import DefineDomain, EnsureBridgedNetwork, EnsureNetwork, RemoveNetwork
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.bridges import Bridge
from tests.unit.agent.bench import Bench, domain_of

OFFICE = EnsureBridgedNetwork(name="office", bridge="br0", vlan=None, dhcp_servers=("192.0.2.1", "192.0.2.2"))


@pytest.fixture
def bench(furnished: Bench, tmp_path: Path) -> Bench:
    add_bridge(tmp_path, "br0", "eth0")
    add_bridge(tmp_path, "br120", "eth0.120", tags={"eth0.120": (120, "eth0")})
    return furnished


def add_bridge(root: Path, name: str, *ports: str, tags: dict[str, tuple[int, str]] | None = None) -> None:
    net, vlans = root / "sys/class/net", root / "proc/net/vlan"
    (net / name / "bridge").mkdir(parents=True)
    for port in ports:
        (net / name / "brif" / port).mkdir(parents=True)
        (net / port).mkdir(exist_ok=True)
    vlans.mkdir(parents=True, exist_ok=True)
    with (vlans / "config").open("a") as config:
        config.write("VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n")
        config.writelines(f"{port:<15}| {tag}  | {below}\n" for port, (tag, below) in (tags or {}).items())


def definition(bench: Bench, name: str) -> ET.Element:
    return ET.fromstring(bench.libvirt.networkLookupByName(name).XMLDesc())


def refusal(bench: Bench, action: EnsureBridgedNetwork) -> str:
    before = {one.name() for one in bench.libvirt.listAllNetworks()}
    with pytest.raises((Conflict, InvalidInput)) as refused:
        bench.do(action)
    assert {one.name() for one in bench.libvirt.listAllNetworks()} == before
    return refused.value.code


def test_bridges_are_named_with_the_vlans_that_leave_through_them(bench: Bench, tmp_path: Path) -> None:
    add_bridge(tmp_path, "br7", "br0.7", tags={"br0.7": (7, "br0")})
    assert HostBridges(bench.host.paths).read() == (
        Bridge(name="br0", kind="linux"),
        Bridge(name="br120", kind="linux", vlans=("br0.120", "eth0.120")),
        Bridge(name="br7", kind="linux", vlans=("br0.7",)),
    )


def test_a_network_on_a_bridge_is_made_once_and_taken_away_with_what_it_noted(bench: Bench) -> None:
    assert bench.do(OFFICE).changed
    assert not bench.do(OFFICE).changed
    root = definition(bench, "office")
    assert [(one.tag, one.attrib) for one in root.findall("forward")] == [("forward", {"mode": "bridge"})]
    assert [one.get("name") for one in root.findall("bridge")] == ["br0"]
    assert bench.do(RemoveNetwork(name="office")).changed
    assert not bench.do(RemoveNetwork(name="office")).changed
    assert all(bench.ledger.owner(f"{key}:office") is None for key in ("network", "used-network", "dhcp-servers"))


def test_the_vlan_of_a_bridge_is_the_bridge_that_carries_it(bench: Bench) -> None:
    bench.do(replace(OFFICE, vlan=120))
    assert [one.get("name") for one in definition(bench, "office").findall("bridge")] == ["br120"]


def test_a_vm_there_gets_its_address_from_the_servers_that_were_named(bench: Bench) -> None:
    bench.do(OFFICE)
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="office")))
    (xml,) = bench.domains_there().values()
    guard = ET.fromstring(xml).findall("devices/interface/filterref/parameter")
    assert [one.get("value") for one in guard if one.get("name") == "DHCPSERVER"] == ["192.0.2.1", "192.0.2.2"]


def test_a_vm_behind_nat_gets_its_address_from_its_host(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="default.blue", subnet="10.88.3.0/24"))
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="default.blue")))
    (xml,) = bench.domains_there().values()
    guard = ET.fromstring(xml).findall("devices/interface/filterref/parameter")
    assert [one.get("value") for one in guard if one.get("name") == "DHCPSERVER"] == ["10.88.3.1"]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (replace(OFFICE, bridge="br1"), "host.no_bridge"),
        (replace(OFFICE, bridge="eth0"), "host.no_bridge"),
        (replace(OFFICE, vlan=121), "host.no_bridge"),
        (replace(OFFICE, bridge="br120", vlan=120), "host.no_bridge"),
        (replace(OFFICE, bridge="../br0"), "network.bridge_invalid"),
        (replace(OFFICE, bridge="-br0"), "network.bridge_invalid"),
        (replace(OFFICE, bridge="b" * 16), "network.bridge_invalid"),
        (replace(OFFICE, vlan=0), "network.vlan_invalid"),
        (replace(OFFICE, vlan=4095), "network.vlan_invalid"),
        (replace(OFFICE, dhcp_servers=("192.0.2.1'/>",)), "network.dhcp_server_invalid"),
        (replace(OFFICE, dhcp_servers=("192.0.2.1",) * 5), "network.dhcp_server_invalid"),
        (replace(OFFICE, name="a/b"), "network.name_invalid"),
    ],
)
def test_what_is_no_bridge_for_vms_is_refused_and_nothing_is_changed(
    bench: Bench, wanted: EnsureBridgedNetwork, code: str
) -> None:
    assert refusal(bench, wanted) == code


def test_a_bridge_of_open_vswitch_is_refused_by_its_name(bench: Bench, tmp_path: Path) -> None:
    for name in ("br-int", "ovs-system", "eth9"):
        (tmp_path / "sys/class/net" / name).mkdir()
    bench.drivers_of_interfaces["br-int"] = "openvswitch"
    assert refusal(bench, replace(OFFICE, bridge="br-int")) == "host.openvswitch"
    assert refusal(bench, replace(OFFICE, bridge="br-int", vlan=120)) == "host.openvswitch"
    assert refusal(bench, replace(OFFICE, bridge="eth9")) == "host.no_bridge"


def test_no_vm_gets_onto_the_bridge_of_another_network_of_libvirts(bench: Bench, tmp_path: Path) -> None:
    """Else a tenant's network would be anybody's who may name its bridge."""
    bench.libvirt.networkDefineXML(
        "<network><name>red.own</name><forward mode='nat'/><bridge name='virbr5'/>"
        "<ip address='10.88.5.1' netmask='255.255.255.0'/></network>"
    )
    add_bridge(tmp_path, "virbr5")
    assert refusal(bench, replace(OFFICE, bridge="virbr5")) == "host.no_bridge"


def test_a_network_of_somebody_else_on_another_bridge_is_left_alone(bench: Bench) -> None:
    bench.libvirt.networkDefineXML("<network><name>office</name><forward mode='bridge'/><bridge name='br9'/></network>")
    assert refusal(bench, OFFICE) == "network.foreign"
    assert [one.get("name") for one in definition(bench, "office").findall("bridge")] == ["br9"]


def test_one_that_no_vm_has_moves_to_another_bridge(bench: Bench) -> None:
    bench.do(OFFICE)
    assert bench.do(replace(OFFICE, vlan=120)).changed
    assert [one.get("name") for one in definition(bench, "office").findall("bridge")] == ["br120"]
    assert bench.do(EnsureNetwork(name="office", subnet="10.88.6.0/24")).changed
    assert definition(bench, "office").find("forward[@mode='nat']") is not None


def test_the_kernel_names_no_driver_of_what_is_not_there() -> None:
    assert driver_of("no-such-bridge") == ""
    assert driver_of("lo") != "openvswitch"


def test_no_vm_of_one_network_gets_onto_another_that_has_its_name_with_vms(bench: Bench) -> None:
    bench.do(OFFICE)
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="office")))
    assert refusal(bench, replace(OFFICE, vlan=120)) == "network.foreign"
    with pytest.raises(Conflict) as refused:
        bench.do(EnsureNetwork(name="office", subnet="10.88.6.0/24"))
    assert refused.value.code == "network.foreign"
    assert refusal(bench, replace(OFFICE, name="default")) == "network.foreign"
    assert not bench.do(OFFICE).changed
