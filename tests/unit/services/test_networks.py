# SPDX-License-Identifier: Apache-2.0
"""Which network a tenant means by a name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.services.networks import NetworkService
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm


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
