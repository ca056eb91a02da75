# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.vms.network import Network, check_host_name, free_subnet, own_name, parse_subnet


def test_private_subnets_are_taken_in_canonical_form() -> None:
    assert parse_subnet("10.88.1.0/24", ()) == "10.88.1.0/24"
    assert parse_subnet("192.168.4.0/255.255.255.0", ()) == "192.168.4.0/24"
    assert parse_subnet("100.64.8.0/24", ()) == "100.64.8.0/24"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.0.1/24",
        "8.8.8.0/24",
        "100.63.0.0/24",
        "100.128.0.0/24",
        "10.0.0.0/8",
        "10.0.0.0/29",
        "::1/64",
        "10.0.0.0/24; id",
        "10.0.0.0/-1",
    ],
)
def test_other_networks_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_subnet(text, ())
    assert caught.value.code == "network.subnet_invalid"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10.88.7.5/24", "10.88.7.0/24"),
        ("192.168.4.9/255.255.255.0", "192.168.4.0/24"),
        ("10.88.7.0/024", "10.88.7.0/24"),
        ("10.88.7.0", "10.88.1.0/24"),
        ("fd00::1/64", "10.88.1.0/24"),
    ],
)
def test_an_address_within_a_network_is_answered_with_the_network(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_subnet(text, ())
    assert caught.value.hint == f"write it as {hint}"
    assert parse_subnet(hint, ()) == hint


def test_subnets_do_not_overlap() -> None:
    with pytest.raises(Conflict) as caught:
        parse_subnet("10.88.0.0/23", ("10.88.1.0/24",))
    assert caught.value.code == "network.subnet_overlaps"


def test_the_first_free_subnet_is_drawn_until_there_is_none() -> None:
    assert free_subnet(("10.88.0.0/24", "10.88.2.0/24")) == "10.88.1.0/24"
    with pytest.raises(Conflict):
        free_subnet(("10.88.0.0/13",))


def test_what_hosts_call_a_network_says_whose_it_is() -> None:
    own, of_site = (
        Network(name=own_name("red", "blue"), subnet="10.88.0.0/24"),
        Network(name="blue", subnet="10.0.0.0/24"),
    )
    assert (own.name, own.tenant, own.short) == ("red.blue", "red", "blue")
    assert (of_site.name, of_site.tenant, of_site.short) == ("blue", None, "blue")


def test_vms_of_a_tenants_network_have_names_there_and_strangers_on_one_of_the_site_have_none() -> None:
    own, of_site = Network(name="red.blue", subnet="10.88.0.0/24"), Network(name="blue", subnet="10.0.0.0/24")
    assert (own.dns_servers, own.dns_domain) == (("10.88.0.1",), "blue.red.internal")
    assert (of_site.dns_servers, of_site.dns_domain) == (("10.0.0.1",), None)
    bridged = Network(name="red.office", uplink=Uplink(bridge="br0", vlan=None))
    assert (bridged.dns_servers, bridged.dns_domain) == ((), None)


@pytest.mark.parametrize("name", ["", ".", "red.", ".blue", "a.b.c", "red/blue", "red.Blue", "../blue", "red.blue\n"])
def test_nothing_else_is_a_name_of_a_network_on_hosts(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_host_name(name)
    assert caught.value.code == "network.name_invalid"
