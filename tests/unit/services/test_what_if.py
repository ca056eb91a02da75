# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.advice.gpu_map import GpuRow
from orchestrator.core.errors import NotFound
from orchestrator.core.gpu.vgpu_parameters import SchedulerState
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.core.vms.priority import PRIORITIES, Priority
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import GIB, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.drawn import drawn_capacity, drawn_explanation, drawn_map
from tests.fakes.golden import GOLDEN, check_golden

SMALL: dict[str, Any] = {"vcpus": 2, "memory_mib": 4096, "disk_bytes": 20 * GIB}
"""What fits on each of the hosts, so that GPUs alone decide."""
QUESTIONS = {
    "mig_profile": Question(profile="2g.20gb", **SMALL),
    "mig_backed": Question(profile="a100-sxm-80-3-40c", **SMALL),
    "time_sliced_where_mig_is_on": Question(profile="a100-sxm-80-20c", host="mig", **SMALL),
    "one_gpu": Question(profile="a100-sxm-80-x1", **SMALL),
    "fabric_of_four": Question(profile="h100-sxm-x4", **SMALL),
    "fabric_of_four_one_gpu_broken": Question(profile="h100-sxm-x4", host="hgx-broken", **SMALL),
    "other_size_in_use": Question(profile="GRID T4-4Q", **SMALL),
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def observe(plane: ControlPlane, name: str, *gpus: GpuSnapshot) -> None:
    """A host with these GPUs beside the one that was added."""
    with plane.store.begin() as tx:
        host, snapshot = tx.hosts.get(T4_HOST), tx.hosts.snapshot(T4_HOST)
        assert snapshot is not None
        tx.hosts.add(replace(host, name=name, address=f"{name}.test", machine_id=name, managed_gpus=()))
        tx.hosts.set_gpus(name, [gpu.address for gpu in gpus])
        tx.hosts.put_snapshot(name, replace(snapshot, machine_id=name, gpus=gpus), 10**12)


def gpus_of(plane: ControlPlane, name: str) -> tuple[GpuSnapshot, ...]:
    with plane.store.read() as tx:
        snapshot = tx.hosts.snapshot(name)
    assert snapshot is not None
    return snapshot.gpus


def gpu(number: int, model: str, device: str, subsystem: str, memory_gib: int, **more: Any) -> GpuSnapshot:
    base = GpuSnapshot(
        address=f"0000:{number:02x}:00.0", uuid=f"GPU-{number}", serial=None, model=model, pci_vendor="10de",
        pci_device=device, pci_subsystem_vendor="10de", pci_subsystem_device=subsystem, numa_node=0,
        memory_mib=memory_gib * 1024, driver="nvidia", framework="vendor_vfio", sriov_total_vfs=16,
        sriov_enabled_vfs=16, mig_enabled=None, heterogeneous=None, module_id=None, types=(), parents=(),
        scheduler=None if more.get("mig_enabled") else SchedulerState(policy="best_effort", time_slice_us=None),
    )  # fmt: skip
    return replace(base, **more)


def everything(plane: ControlPlane) -> None:
    def a100(number: int, *, mig: bool) -> GpuSnapshot:
        return gpu(number, "NVIDIA A100-SXM4-80GB", "20b2", "1463", 80, mig_enabled=mig, heterogeneous=False)

    def h100(number: int, **more: Any) -> GpuSnapshot:
        return gpu(number, "NVIDIA H100 80GB HBM3", "2330", "16c1", 80, framework="none", module_id=number, **more)

    observe(plane, "mig", a100(1, mig=True))
    observe(plane, "sliced", *(a100(number, mig=False) for number in (1, 2)))
    observe(plane, "mixed", gpu(1, "NVIDIA L4", "27b8", "16ca", 24, heterogeneous=True))
    observe(plane, "hgx", *(h100(number) for number in range(1, 9)))
    broken = ("fell off the bus",)
    observe(plane, "hgx-broken", *(h100(n, problems=broken if n in {3, 6} else ()) for n in range(1, 9)))


def check(name: str, text: str) -> None:
    check_golden(GOLDEN / "what_if" / f"{name}.txt", text)


@pytest.mark.parametrize("name", QUESTIONS)
def test_profiles_that_are_not_made_yet_are_explained_as_truly_as_the_others(plane: ControlPlane, name: str) -> None:
    everything(plane)
    for number, profile in enumerate(("GRID T4-1Q", "GRID T4-2Q")):
        plane.services.vms.create(create_vm(f"vm{number}", profile=profile, start=False))
    named = plane.services.capacity.explain(QUESTIONS[name])
    check(f"explain_{name}", drawn_explanation(named.explanation, names=named.names))


def test_capacity_counts_every_offering_that_some_gpu_can_be_cut_into(plane: ControlPlane) -> None:
    everything(plane)
    check("capacity", drawn_capacity(plane.services.capacity.capacity(Question(each=True, **SMALL))))


def test_the_map_shows_gpus_in_every_mode(plane: ControlPlane) -> None:
    everything(plane)
    plane.services.vms.create(create_vm(start=False))
    check("gpu_map", drawn_map(plane.services.capacity.gpu_map(), 100))


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_the_map_read_in_pages_is_the_whole_map(plane: ControlPlane, most: int) -> None:
    everything(plane)
    read, after = list[GpuRow](), None
    while page := plane.services.capacity.gpu_map(after, most):
        assert len(page) <= most
        read += page
        after = (page[-1].host or "", page[-1].gpu)
    assert tuple(read) == plane.services.capacity.gpu_map()
    assert {row.host for row in plane.services.capacity.gpu_map(("no such host", ""))} == {
        row.host for row in read if (row.host or "") > "no such host"
    }


def test_asking_about_two_devices_of_a_several_vgpu_offering_asks_for_twice_as_many(plane: ControlPlane) -> None:
    pair = Offering(name="pair", origin="site", kind="time_sliced", vgpu_type="GRID T4-16C", vgpu_count=2)
    plane.services.offerings.put(pair, look_up=True)
    answer = plane.services.capacity.explain(Question(profile="pair", count=2, disk_bytes=GIB))
    assert answer.explanation.request.count == 4


@pytest.mark.parametrize(
    "asked", [Question(profile="GRID T4-1Q", host="nowhere"), Question(profile="GRID T4-1Q", tenant="nobody")]
)
def test_a_question_about_a_host_or_tenant_that_is_not_there_is_refused(plane: ControlPlane, asked: Question) -> None:
    with pytest.raises(NotFound):
        plane.services.capacity.explain(asked)


def test_an_explanation_says_whom_a_priority_would_have_stopped(plane: ControlPlane) -> None:
    rows: tuple[tuple[str, Priority], ...] = (("batch", "low"), ("serve", "normal"))
    for name, priority in rows:
        plane.services.vms.create(replace(create_vm(name, profile="GRID T4-16Q"), priority=priority))
    plane.engine.drain()
    whole = Question(profile="GRID T4-16Q")
    questions: dict[Priority | None, Question] = {None: whole}
    questions |= {one: replace(whole, priority=one, preempt=True) for one in PRIORITIES}
    asked = {priority: plane.services.capacity.explain(one) for priority, one in questions.items()}
    assert {priority: found.preempts for priority, found in asked.items()} == {
        None: (), "low": (), "normal": ("default/batch",), "high": ("default/serve",),
    }  # fmt: skip
    text = drawn_explanation(asked["high"].explanation, preempts=asked["high"].preempts)
    assert text.endswith("with --preempt it would have stopped: default/serve\n")


def test_an_offering_whose_vms_keep_apart_fits_once_on_each_host_without_one(plane: ControlPlane) -> None:
    observe(plane, "t4-too", *gpus_of(plane, T4_HOST))
    observe(plane, "t4-three", *gpus_of(plane, T4_HOST))
    apart = Offering(name="apart", origin="site", kind="time_sliced", vgpu_type="GRID T4-4Q", anti_affinity="host")
    plane.services.offerings.put(apart, look_up=True)
    capacity, question = plane.services.capacity, Question(profile="apart")
    plane.services.tenancy.quotas.change("default", {"vms": 100})

    def told() -> set[int]:
        every = {row.profile: row.fits_now for row in capacity.capacity(Question(each=True))}["apart"]
        of_tenant = {row.profile: row.fits_now for row in capacity.room(Question(each=True), "default")}["apart"]
        return {
            every,
            of_tenant,
            capacity.capacity(question)[0].fits_now,
            capacity.room(question, "default")[0].fits_now,
        }

    assert told() == {3}
    leased = replace(create_vm("one", profile="apart", start=False), host=T4_HOST, end=WantedEnd(after_s=600))
    plane.services.vms.create(leased)
    plane.engine.drain()
    assert told() == {2}
    plane.look(T4_HOST, after_s=700)
    assert plane.services.vms.get("default", "one").deallocated == "lease_over"
    assert told() == {2}, "it stays on its host, with nothing on a GPU that tells it from the others"
