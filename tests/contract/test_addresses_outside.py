# SPDX-License-Identifier: Apache-2.0
"""Addresses of provider networks: whose they are, whom they count for, and when they are free again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, QuotaExceeded, Retryable
from tests.contract.test_groups_in_ovn import MaybeAway
from tests.contract.test_ways_out import BLUE, OUTSIDE, create, differ, nats, northbound, plane, refused, repair
from tests.fakes.control_plane import ControlPlane
from tests.fakes.ovn_databases import RealOvn

__all__ = ("northbound", "plane")


def test_addresses_run_out_and_are_nobodys_but_their_tenants(plane: ControlPlane) -> None:
    floating = plane.services.floating_addresses
    plane.services.tenancy.tenants.create("red")
    mine = [floating.create("red").address for _ in range(3)]
    refused("network.full", NoCapacity, floating.create, "default")
    refused("network.address_taken", Conflict, floating.create, "default", None, mine[0])
    for bad in ("192.0.2.99", "192.0.2.1", "x", "10.0.0.1"):
        refused("network.address_invalid", InvalidInput, floating.create, "red", None, bad)
    refused("network.full", NoCapacity, plane.services.networks.add_overlay, "green", BLUE, "red", "outside")
    for act in (floating.detach, floating.delete):
        refused("address.unknown", NotFound, act, "default", mine[0])
    refused("network.in_use", Conflict, plane.services.networks.delete, "outside")
    plane.services.tenancy.tenants.delete("red")
    assert floating.list(None) == ()
    plane.services.networks.delete("blue", "default")
    plane.services.networks.delete("outside")


def test_what_a_tenant_gives_back_does_not_use_a_provider_network_up(plane: ControlPlane) -> None:
    services = plane.services
    wide = replace(OUTSIDE, vlan=121, subnet="198.51.100.0/24", gateway="198.51.100.1")
    services.provider_networks.add("wide", replace(wide, addresses="198.51.100.10-198.51.100.29"))
    services.tenancy.tenants.create("red")
    floating = services.floating_addresses
    for _ in range(5):  # a quarter of 20
        floating.delete("red", floating.create("red", "wide").address)
    refused("network.given_back", Conflict, floating.create, "red", "wide")
    refused("network.given_back", Conflict, services.networks.add_overlay, "green", BLUE, "red", "wide")
    assert floating.create("default", "wide").network == "wide"
    repair(plane)
    assert floating.create("red", "wide").network == "wide"


def test_an_address_is_nobody_elses_before_ovn_has_let_go(
    plane: ControlPlane, ovn: RealOvn, northbound: MaybeAway
) -> None:
    """Whatever had it is gone, and a router or a port in OVN still answers for it."""
    services = plane.services
    services.tenancy.tenants.create("red")
    services.networks.add_overlay("green", BLUE, "red", "outside")
    led = services.floating_addresses.create("red").address
    web = create(plane, "web", addresses={"blue": "10.0.0.9"})
    assert web.ports[0].address == "10.0.0.9"
    outs = {str(known.overlay.out.address) for known in services.networks.list()
            if known.overlay is not None and known.overlay.out is not None}  # fmt: skip
    northbound.away = True
    services.vms.delete("default", "web")
    plane.engine.drain()
    services.networks.delete("blue", "default")
    services.tenancy.tenants.delete("red")
    northbound.away = False
    assert len(outs | {led}) == 3
    for address in sorted(outs | {led}):
        refused("network.address_taken", Conflict, services.floating_addresses.create, "default", None, address)
    services.networks.add_overlay("blue", BLUE, "default", "outside")
    with pytest.raises(Conflict, match=r"10\.0\.0\.9 is nobody's any more, and not free yet on blue"):
        create(plane, "web", addresses={"blue": "10.0.0.9"})
    repair(plane)
    for address in sorted(outs | {led})[:1]:
        assert services.floating_addresses.create("default", address=address).vm is None
    assert create(plane, "web", addresses={"blue": "10.0.0.9"}).ports[0].address == "10.0.0.9"
    repair(plane)
    assert differ(plane) == []


def test_addresses_that_one_row_holds_back_are_told_by_name(
    plane: ControlPlane, ovn: RealOvn, northbound: MaybeAway
) -> None:
    """Somebody has taken the mark off a row of ours: it is not ours to change, and its UUID is taken."""

    def held() -> list[str]:
        repair(plane)
        troubles = plane.services.network_driver.get().troubles
        return [trouble.message for trouble in troubles if trouble.code == "ovn.addresses_held"]

    create(plane, "web", addresses={"blue": "10.0.0.9"})
    create(plane, "db")
    assert held() == []
    marked, *_ = ovn.nbctl("--bare", "--columns=_uuid", "list", "nat").split()
    ids = ovn.nbctl("get", "nat", marked, "external_ids").strip()
    ovn.nbctl("clear", "nat", marked, "external_ids")
    northbound.away = True
    plane.services.vms.delete("default", "web")
    plane.engine.drain()
    northbound.away = False
    (message,) = held()
    assert message.startswith("10.0.0.9 of default.blue stay taken: OVN has not taken ")
    assert "NAT" in message
    ovn.nbctl("set", "nat", marked, f"external_ids={ids}")
    assert held() == []
    assert create(plane, "web", addresses={"blue": "10.0.0.9"}).ports[0].address == "10.0.0.9"


def test_who_has_an_address_is_told_to_whom_it_may_be(plane: ControlPlane) -> None:
    services = plane.services
    services.tenancy.tenants.create("red")
    services.networks.share("outside", shared=True)
    create(plane, "straight", "outside")
    floating = services.floating_addresses.create("default").address
    for tenant in ("default", "red"):
        told = {}
        for number in range(100, 104):
            try:
                services.floating_addresses.create(tenant, "outside", f"192.0.2.{number}")
            except Conflict as error:
                told[f"192.0.2.{number}"] = error.message.partition(" is ")[2].removesuffix(" on outside")
        if tenant == "default":  # its own floating one is answered as it is
            assert sorted(told.values()) == ["VM straight's", "that of the way out of network blue"]
        else:
            assert list(told.values()) == ["somebody else's"] * 4
    with pytest.raises(Conflict, match=f"{floating} is a floating address of the tenant's"):
        create(plane, "other", "outside", addresses={"outside": floating})


def test_addresses_of_the_sites_count_for_the_tenant_that_has_them(plane: ControlPlane) -> None:
    services = plane.services
    services.tenancy.tenants.create("red")
    services.tenancy.quotas.change("red", {"addresses": 2})
    services.networks.add_overlay("green", BLUE, "red", "outside")
    address = services.floating_addresses.create("red").address
    with pytest.raises(QuotaExceeded, match=f"held by floating address {address} .1., network green .1."):
        services.floating_addresses.create("red")
    refused("quota.exceeded", QuotaExceeded, services.networks.add_overlay, "more", BLUE, "red", "outside")
    services.networks.add_overlay("shut", BLUE, "red")
    assert services.floating_addresses.create("red", address=address).address == address
    services.floating_addresses.delete("red", address)
    services.networks.delete("green", "red")
    assert {use.resource: use.used for use in services.tenancy.quotas.get("red")}["addresses"] == 0


def test_the_northbound_is_repaired_while_the_southbound_is_away(plane: ControlPlane, ovn: RealOvn) -> None:
    create(plane, "web")
    ovn.nbctl("--all", "destroy", "nat", "--", "clear", "logical_router", "default.blue", "nat")
    away = OvnDatabases(northbound=(), southbound=("unix:/nowhere.sock",), trust=lambda: None)
    refused("ovn.unreachable", Retryable, repair, plane, away)
    assert len(nats(ovn)) == 2
    assert differ(plane) == []
