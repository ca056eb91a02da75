# SPDX-License-Identifier: Apache-2.0
"""Addresses that networks of ours keep for VMs, on libvirt's own test driver, which has no DHCP server: what that has
leased is said beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from orchestrator.agent.libvirt.addresses import cards_there, name_of, reserve
from orchestrator.core.actions.host_actions import DefineDomain, EnsureNetwork, StartDomain, UndefineDomain
from orchestrator.core.domain_xml.interface import mac_address
from tests.unit.agent.bench import Bench, domain_of

SMALL = "10.88.0.0/28"
USABLE = {f"10.88.0.{number}" for number in range(2, 15)}
"""All but the subnet's own address, the host's and the one for all."""


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.do(EnsureNetwork(name="default.blue", subnet=SMALL))
    return furnished


class Leasing:
    """The test driver's network, with leases."""

    def __init__(self, network: Any, leases: dict[str, str]) -> None:
        self._network, self._leases = network, leases

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def DHCPLeases(self) -> list[dict[str, str]]:  # noqa: N802 - libvirt's name
        return [{"ipaddr": address, "mac": mac} for address, mac in self._leases.items()]


def reserved(bench: Bench, name: str = "default.blue") -> dict[str, str]:
    """Hardware address → address."""
    root = ET.fromstring(bench.libvirt.networkLookupByName(name).XMLDesc())
    return {host.get("mac", ""): host.get("ip", "") for host in root.findall("ip/dhcp/host")}


def names(bench: Bench) -> dict[str, str | None]:
    """Hardware address → name."""
    root = ET.fromstring(bench.libvirt.networkLookupByName("default.blue").XMLDesc())
    return {host.get("mac", ""): host.get("name") for host in root.findall("ip/dhcp/host")}


def define(bench: Bench, network: str = "default.blue") -> str:
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network=network)))
    return mac_address(bench.vm)


def card_by_hand(bench: Bench, number: int) -> str:
    """A domain with one card on the network; its hardware address."""
    mac = f"52:54:00:00:00:{number:02x}"
    bench.libvirt.defineXML(
        f"<domain type='test'><name>other{number}</name><memory unit='MiB'>64</memory><os><type>hvm</type></os>"
        f"<devices><interface type='network'><mac address='{mac}'/><source network='default.blue'/></interface>"
        "</devices></domain>"
    )
    return mac


def test_a_vm_that_starts_has_an_address_of_its_network_kept_for_it_and_keeps_it(bench: Bench) -> None:
    mac = define(bench)
    bench.do(StartDomain(vm=bench.vm))
    before = reserved(bench)
    assert before.keys() == {mac}
    assert set(before.values()) < USABLE
    bench.libvirt.lookupByUUIDString(bench.vm).destroy()
    bench.do(StartDomain(vm=bench.vm))
    assert reserved(bench) == before


def test_a_vm_that_starts_has_its_name_on_its_network_and_another_of_that_name_an_address_alone(bench: Bench) -> None:
    mac = define(bench)
    bench.do(StartDomain(vm=bench.vm))
    assert names(bench) == {mac: "train"}
    other = card_by_hand(bench, 1)
    network = bench.libvirt.networkLookupByName("default.blue")
    reserve(network, other, cards_there(bench.libvirt), "train")
    assert names(bench) == {mac: "train", other: None}


@pytest.mark.parametrize(
    ("domain", "name"),
    [("red.web-1", "web-1"), ("web", None), ("red.1web", None), ("red.", None), ("red.Web", None)],
)
def test_what_others_call_a_vm_is_read_of_its_definition(domain: str, name: str | None) -> None:
    assert name_of(f"<domain><name>{domain}</name></domain>") == name


def test_a_network_that_was_there_before_us_is_not_changed(bench: Bench) -> None:
    define(bench, "default")
    before = bench.libvirt.networkLookupByName("default").XMLDesc()
    bench.do(StartDomain(vm=bench.vm))
    assert bench.libvirt.networkLookupByName("default").XMLDesc() == before


def test_as_many_as_the_subnet_has_addresses_get_one_each_and_the_next_starts_without(bench: Bench) -> None:
    network = bench.libvirt.networkLookupByName("default.blue")
    for number in range(len(USABLE)):
        reserve(network, card_by_hand(bench, number), cards_there(bench.libvirt))
    full = reserved(bench)
    assert sorted(full.values()) == sorted(USABLE)
    define(bench)
    bench.do(StartDomain(vm=bench.vm))
    assert reserved(bench) == full


def test_what_was_kept_for_a_vm_that_is_no_more_makes_room(bench: Bench) -> None:
    mac = define(bench)
    network = bench.libvirt.networkLookupByName("default.blue")
    reserve(network, mac, cards_there(bench.libvirt), "train")
    bench.do(UndefineDomain(vm=bench.vm))
    other = card_by_hand(bench, 1)
    reserve(network, other, cards_there(bench.libvirt))
    assert reserved(bench).keys() == {other}


def test_an_address_that_a_card_has_now_is_kept_for_it_and_for_nobody_else(bench: Bench) -> None:
    mac, other = define(bench), card_by_hand(bench, 1)
    rest = USABLE - {"10.88.0.9"}
    leases = {"10.88.0.9": mac.upper(), **dict.fromkeys(rest - {"10.88.0.3"}, "52:54:00:ff:ff:ff")}
    network = Leasing(bench.libvirt.networkLookupByName("default.blue"), leases)
    reserve(network, other, cards_there(bench.libvirt))
    reserve(network, mac, cards_there(bench.libvirt))
    assert reserved(bench) == {other: "10.88.0.3", mac: "10.88.0.9"}
