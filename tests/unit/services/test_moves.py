# SPDX-License-Identifier: Apache-2.0
"""What keeps a VM from moving with its state, one thing after another."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.errors import NotFound
from orchestrator.core.gpu.fabric import FabricPlace
from orchestrator.core.gpu.vgpu_parameters import VgpuParameters
from orchestrator.core.hosts.nic import NicPlace
from orchestrator.core.hosts.snapshot import HostCpu, HostSnapshot
from orchestrator.core.moves import moves as all_moves
from orchestrator.core.moves.moves import Moving, barred, barred_hosts
from orchestrator.core.moves.verdicts import KINDS, Bars, HostMoves, MoveKind
from orchestrator.core.vms.vm import Vm
from orchestrator.services.fleet.index import FleetIndex
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

OTHER = "other"
CPU = HostCpu(model="AMD EPYC 9454", features="0123456789abcdef", page_kib=4)
WITH_DEVICES: tuple[MoveKind, ...] = ("live", "suspended")
WITH_MEMORY: tuple[MoveKind, ...] = (*WITH_DEVICES, "hibernated")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs, and one more host like its own."""
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        with made.store.begin() as tx:
            host = tx.hosts.get(T4_HOST)
            tx.hosts.add(replace(host, name=OTHER, address="other.test", machine_id=OTHER, managed_gpus=()))
            tx.hosts.set_gpus(OTHER, host.managed_gpus)
        observe(made, OTHER)
        yield made


def observe(plane: ControlPlane, name: str, *, of_gpu: dict[str, Any] | None = None, **more: Any) -> None:
    with plane.store.begin() as tx:
        seen = tx.hosts.snapshot(name) or tx.hosts.snapshot(T4_HOST)
        assert isinstance(seen, HostSnapshot)
        gpus = tuple(replace(gpu, **(of_gpu or {})) for gpu in seen.gpus)
        if name == OTHER:
            gpus = tuple(replace(gpu, parents=tuple(replace(one, mdevs=()) for one in gpu.parents)) for gpu in gpus)
        tx.hosts.put_snapshot(name, replace(seen, gpus=gpus, machine_id=name, **more), 10**12)


def change(plane: ControlPlane, **more: Any) -> None:
    with plane.store.begin() as tx:
        tx.vms.update(replace(the_vm(plane), **more))


def the_vm(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


def moves(plane: ControlPlane, host: str = OTHER) -> HostMoves:
    return plane.services.moves.to_host("default", "train", host)


def refused(found: HostMoves) -> dict[str, tuple[MoveKind, ...]]:
    """The ways that each limit rules out."""
    codes = {limit.code for verdict in found.verdicts for limit in verdict.limits}
    return {
        code: tuple(kind for kind in KINDS if code in {limit.code for limit in found.of(kind).limits})
        for code in codes
    }  # fmt: skip


def test_a_vm_may_move_in_every_way_to_a_host_like_its_own(plane: ControlPlane) -> None:
    found = moves(plane)
    assert refused(found) == {}
    assert found.gpus
    own = moves(plane, T4_HOST)
    assert own.is_its_own
    assert refused(own) == {"move.same_host": ("live", "cold")}


OF_HOST: dict[str, tuple[dict[str, Any], tuple[MoveKind, ...]]] = {
    "move.host_driver": ({"driver_version": "570.10"}, WITH_MEMORY),
    "move.cpu": ({"cpu": replace(CPU, model="Intel(R) Xeon(R) Platinum 8480+")}, WITH_MEMORY),
    "move.page_size": ({"cpu": replace(CPU, page_kib=64)}, WITH_DEVICES),
    "move.qemu_older": ({"qemu_version": "9.2.4"}, WITH_DEVICES),
    "move.kernel_too_old": ({"kernel": "5.17.0-generic"}, WITH_DEVICES),
    "move.libvirt_too_old": ({"libvirt_version": "8.5.0"}, WITH_DEVICES),
}


@pytest.mark.parametrize("code", OF_HOST)
def test_two_hosts_have_to_be_alike(plane: ControlPlane, code: str) -> None:
    differs, kinds = OF_HOST[code]
    observe(plane, OTHER, **differs)
    assert refused(moves(plane)) == {code: kinds}
    assert all(OTHER in limit.message for limit in moves(plane).of("suspended").limits)


@pytest.mark.parametrize("cpu", [None, replace(CPU, features="fedcba9876543210")])
def test_cpus_that_are_not_told_or_have_other_features_will_not_do(plane: ControlPlane, cpu: HostCpu | None) -> None:
    observe(plane, OTHER, cpu=cpu)
    assert refused(moves(plane)) == {"move.cpu": WITH_MEMORY}


def test_a_driver_of_the_same_branch_takes_a_guest_that_was_hibernated(plane: ControlPlane) -> None:
    with plane.store.read() as tx:
        here = tx.hosts.snapshot(T4_HOST)
    assert here is not None
    observe(plane, OTHER, driver_version=f"{here.driver_version}.7")
    assert refused(moves(plane)) == {"move.host_driver_version": WITH_DEVICES}


@pytest.mark.fault("F46")
def test_what_cannot_be_told_of_software_counts_as_too_old(plane: ControlPlane) -> None:
    observe(plane, OTHER, libvirt_version="unknown", qemu_version="unknown")
    codes = refused(moves(plane))
    assert codes == dict.fromkeys(("move.libvirt_too_old", "move.qemu_too_old", "move.qemu_older"), WITH_DEVICES)


OF_GPU: dict[str, tuple[dict[str, Any], tuple[MoveKind, ...]]] = {
    "move.gpu": ({"pci_subsystem_device": "ffff"}, WITH_MEMORY),
    "move.ecc": ({"ecc": False}, WITH_DEVICES),
    "move.vgpu_state": ({"moves_vgpus": None}, WITH_DEVICES),
}


@pytest.mark.parametrize("code", OF_GPU)
def test_two_gpus_have_to_be_alike(plane: ControlPlane, code: str) -> None:
    differs, kinds = OF_GPU[code]
    observe(plane, OTHER, of_gpu=differs)
    assert refused(moves(plane)) == {code: kinds}


OF_VM: dict[str, tuple[dict[str, Any], tuple[MoveKind, ...]]] = {
    "move.uvm": ({"parameters": VgpuParameters(uvm=True)}, WITH_DEVICES),
    "move.debugger": ({"parameters": VgpuParameters(debugging=True)}, WITH_DEVICES),
    "move.profiler": ({"parameters": VgpuParameters(profiling=True)}, WITH_DEVICES),
    "move.fabric": ({"fabric": FabricPlace(partition=1, modules=(1,), gpus=("0000:41:00.0",))}, WITH_DEVICES),
    "move.whole_gpu": ({"kind": "passthrough"}, WITH_DEVICES),
}


@pytest.mark.parametrize("code", OF_VM)
def test_some_devices_cannot_move_with_their_state_at_all(plane: ControlPlane, code: str) -> None:
    differs, kinds = OF_VM[code]
    change(plane, devices=tuple(replace(device, **differs) for device in the_vm(plane).devices))
    assert refused(moves(plane))[code] == kinds
    own = {verdict.kind: verdict for verdict in plane.services.moves.own("default", "train")}
    assert {kind for kind, verdict in own.items() if not verdict.legal} == set(kinds)
    assert all(limit.cure for verdict in own.values() for limit in verdict.limits)


def test_a_network_function_stays(plane: ControlPlane) -> None:
    nic = NicPlace(
        card="0000:01:00.0", function="0000:01:00.2", functions=4, mac="52:54:00:00:00:01", under_switch=True
    )
    change(plane, nic=nic)
    assert refused(moves(plane))["move.nic_function"] == WITH_DEVICES


def test_a_whole_gpu_that_was_hibernated_wakes_on_the_same_board_alone(plane: ControlPlane) -> None:
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(OTHER), cordoned=True))
    plane.services.vms.create(create_vm(profile="gpu:1"))
    plane.engine.drain()
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(OTHER), cordoned=False))
    stays = {"move.whole_gpu": WITH_DEVICES, "move.not_offered": ("live",)}
    assert refused(moves(plane)) == stays
    observe(plane, OTHER, of_gpu={"pci_subsystem_device": "ffff"})
    assert refused(moves(plane)) == {**stays, "move.gpu": WITH_MEMORY}


def test_a_stopped_vm_has_nothing_to_move_but_its_disk(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert refused(moves(plane)) == {"move.not_running": WITH_MEMORY}


def test_nothing_moves_from_a_host_that_is_away_and_the_rest_is_told_all_the_same(plane: ControlPlane) -> None:
    observe(plane, OTHER, of_gpu={"ecc": False})
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable"))
    assert refused(moves(plane)) == {"move.own_host_away": KINDS, "move.ecc": WITH_DEVICES}


def test_volumes_keep_a_vm_on_its_host(plane: ControlPlane) -> None:
    change(plane, spec=replace(the_vm(plane).spec, volumes=("scratch.0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2",)))
    assert refused(moves(plane)) == {"move.volume": KINDS}
    assert "scratch" in moves(plane).of("cold").limits[0].message
    assert not any(verdict.legal for verdict in plane.services.moves.own("default", "train"))
    assert refused(moves(plane, T4_HOST)) == {"move.same_host": ("live", "cold")}


def test_a_vm_goes_onto_the_gpu_that_its_state_goes_onto(plane: ControlPlane) -> None:
    """One of the host's GPUs is of another board; the other one is full, or has a place."""
    with plane.store.begin() as tx:
        seen = tx.hosts.snapshot(OTHER)
        assert seen is not None
        first = seen.gpus[0]
        second = replace(first, address="0000:42:00.0", uuid="GPU-2", ecc=False)
        tx.hosts.set_gpus(OTHER, [first.address, second.address])
        tx.hosts.put_snapshot(OTHER, replace(seen, gpus=(replace(first, problems=("it is broken",)), second)), 10**12)
    assert refused(moves(plane)) == {"gpu.unusable": WITH_DEVICES}
    assert moves(plane).gpus == ("0000:42:00.0",)


def test_hosts_come_in_pages_and_only_those_where_it_is_legal(plane: ControlPlane) -> None:
    service = plane.services.moves
    assert [move.host for move in service.of_vm("default", "train", most=10)] == [OTHER, T4_HOST]
    assert [move.host for move in service.of_vm("default", "train", after=OTHER, most=10)] == [T4_HOST]
    assert [move.host for move in service.of_vm("default", "train", most=10, legal="live")] == [OTHER]
    assert service.how_many() == 2


def test_a_host_that_was_never_observed_says_so(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.hosts.add(replace(tx.hosts.get(T4_HOST), name="new", address="new.test", machine_id="new", managed_gpus=()))
    with pytest.raises(NotFound, match="never observed"):
        moves(plane, "new")
    with pytest.raises(NotFound, match="nowhere"):
        moves(plane, "nowhere")


def test_asking_leaves_the_fleet_as_it_was(plane: ControlPlane) -> None:
    index = FleetIndex(plane.store, plane.services.vms.planner.index.overcommit)
    service = replace(plane.services.moves, index=index)
    before = [service.to_host("default", "train", name) for name in (OTHER, T4_HOST)]
    assert [service.to_host("default", "train", name) for name in (OTHER, T4_HOST)] == before


@pytest.mark.parametrize("way", ["live", "cold"])
def test_thousands_of_hosts_are_judged_as_each_by_itself_and_those_alike_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, way: MoveKind
) -> None:
    rng, service = random.Random(5), plane.services.moves
    with service.index.current() as fleet, plane.store.read() as tx:
        moving = service.moving(tx, fleet, plane.services.vms.get("default", "train"))
        own = fleet.host(T4_HOST)
    assert own is not None
    facts = own.facts
    cpus = (facts.cpu, None, CPU)
    kinds = [
        replace(facts, qemu=qemu, kernel=kernel, cpu=cpu)
        for qemu in (facts.qemu, "7.0.0") for kernel in (facts.kernel, "5.4.0") for cpu in cpus
    ]  # fmt: skip
    hosts = [(T4_HOST, facts), *((f"h{number}", rng.choice(kinds)) for number in range(10_000))]
    expected = {name for name, of_host in hosts if barred(moving, way, name, of_host)}
    judged: list[str] = []
    between = all_moves._between

    def counted(moving: Moving, name: str, target: HostFacts) -> Iterator[Bars]:
        judged.append(name)
        return between(moving, name, target)

    monkeypatch.setattr(all_moves, "_between", counted)
    assert barred_hosts(moving, way, hosts) == expected
    assert len(judged) <= len(kinds)
