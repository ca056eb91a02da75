# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.api.schemas.vms import vm_members
from orchestrator.core.actions.host_actions import EnsureNetwork
from orchestrator.core.domain_xml.interface import GUARD
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.services.messages import CreateVm
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_world import FakeSeeds
from tests.operations.network_functions import create_with_function
from tests.operations.test_vm_life import finished


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.networks.add("common", None)
        made.services.networks.add("inner", None, "default")
        yield made


def on(*networks: str) -> CreateVm:
    return replace(create_vm(), network=networks[0], more_networks=networks[1:])


def test_a_vm_has_a_card_on_each_network_in_their_order(plane: ControlPlane) -> None:
    vms, machine = plane.services.vms, plane.machine(T4_HOST)
    plan = vms.plan(on("inner", "common"))
    assert [one.name for one in plan.actions if isinstance(one, EnsureNetwork)] == ["default.inner", "common"]
    assert finished(plane, vms.create(on("inner", "common")).operation).state == "done"
    vm = vms.get("default", "train")
    cards = ET.fromstring(machine.domains[vm.id][0]).findall("./devices/interface")
    seen = [(one.find("source"), one.find("mac"), one.find("filterref"), one.find("port")) for one in cards]
    assert [source.get("network") for source, _, _, _ in seen if source is not None] == ["default.inner", "common"]
    assert all(guard is not None and guard.get("filter") == GUARD for _, _, guard, _ in seen)
    assert [port is not None for _, _, _, port in seen] == [False, True], "apart where others are"
    macs = [mac.get("address") for _, mac, _, _ in seen if mac is not None]
    shown = vm_members(vm, {}, watching=True)["cards"]
    assert shown == [
        {"mac": macs[0], "network": "inner", "network_tenant": "default", "address": None, "address6": None},
        {"mac": macs[1], "network": "common", "network_tenant": None, "address": None, "address6": None},
    ]
    assert len(set(macs)) == 2
    assert isinstance(plane.world.seeds, FakeSeeds)
    assert [list(seed.cards) for seed in plane.world.seeds.built] == [macs], "by which its guest tells them apart"
    assert {"default.inner", "common"} <= machine.networks
    assert vms.create(on("inner", "common")).existing, "the same command again"
    with pytest.raises(Conflict):
        vms.create(on("common", "inner"))


def test_a_network_that_any_card_is_on_is_kept(plane: ControlPlane) -> None:
    finished(plane, plane.services.vms.create(on("common", "inner")).operation)
    with pytest.raises(Conflict) as kept:
        plane.services.networks.delete("inner", "default")
    assert (kept.value.code, "train" in kept.value.message) == ("network.in_use", True)
    finished(plane, plane.services.vms.delete("default", "train").operation)
    plane.services.networks.delete("inner", "default")


def test_a_network_twice_one_of_nobodys_and_too_many_are_refused(plane: ControlPlane) -> None:
    for networks, code in ((("inner", "inner"), "network.repeated"), (tuple("abcdefghi"), "network.too_many_cards")):
        with pytest.raises(InvalidInput) as refused:
            plane.services.vms.plan(on(*networks))
        assert refused.value.code == code
    plane.services.tenancy.tenants.create("research")
    with pytest.raises(NotFound) as unknown:
        plane.services.vms.plan(replace(on("default", "inner"), tenant="research"))
    assert unknown.value.code == "network.unknown"


def test_a_card_on_the_default_network_that_is_not_made_yet_makes_it(plane: ControlPlane) -> None:
    assert finished(plane, plane.services.vms.create(on("inner", "default")).operation).state == "done"
    assert plane.services.vms.get("default", "train").spec.more_networks == ("default.default",)


def test_packed_user_data_is_the_same_as_what_is_in_it(plane: ControlPlane) -> None:
    plain, vms, seeds = create_vm().user_data, plane.services.vms, plane.world.seeds
    assert isinstance(seeds, FakeSeeds)
    assert plain is not None
    packed = base64.b64encode(gzip.compress(plain.encode())).decode()
    finished(plane, vms.create(replace(create_vm(), user_data=packed)).operation)
    assert [seed.user_data for seed in seeds.built] == [plain]
    assert vms.create(create_vm()).existing


def test_the_function_of_a_card_is_told_by_the_address_that_is_set_on_it(plane: ControlPlane) -> None:
    create_with_function(plane)
    vm, seeds = plane.services.vms.get("default", "train"), plane.world.seeds
    assert isinstance(seeds, FakeSeeds)
    assert vm.nic is not None
    assert [seed.function for seed in seeds.built] == [vm.nic.mac]
