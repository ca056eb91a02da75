# SPDX-License-Identifier: Apache-2.0
"""Networks that the server has deleted, and whose names and addresses others got since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.core.host_actions import DefineDomain, EnsureNetwork, RemoveNetwork
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


def test_a_network_of_the_hosts_own_never_makes_room(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="red.new", subnet="192.168.0.0/16"))
    assert "default" in networks(bench)


def test_a_vm_is_on_no_network_of_another_tenant(bench: Bench) -> None:
    bench.do(EnsureNetwork(name="red.blue", subnet=MINE))
    with pytest.raises(InvalidInput) as refused:
        bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="red.blue")))
    assert refused.value.code == "vm.domain_invalid"
