# SPDX-License-Identifier: Apache-2.0
"""VMs with several vGPUs, of every kind: made, stopped, started and given back together, on one GPU or on two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity, QuotaExceeded
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.offerings.offering import Offering
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, a100, devices, l40s, t4
from tests.operations import shared_instances
from tests.operations.several_vgpus import PROFILE

_GPUS = {T4_HOST: t4, L40S_HOST: l40s, A100_HOST: a100, shared_instances.HOST: shared_instances.rtx}
_TWO = Offering(name="two", origin="site", kind="time_sliced", vgpu_count=2)
_ASKED = {
    "mdev": (T4_HOST, replace(_TWO, vgpu_type="GRID T4-2Q"), 1),
    "mdev, full": (T4_HOST, replace(_TWO, vgpu_type="GRID T4-16Q"), 2),
    "vendor_vfio": (L40S_HOST, replace(_TWO, vgpu_type="NVIDIA L40S-12Q"), 1),
    "vendor_vfio, full": (L40S_HOST, replace(_TWO, vgpu_type="NVIDIA L40S-48Q"), 2),
    "scheduled": (
        L40S_HOST,
        replace(_TWO, vgpu_type="NVIDIA L40S-12Q", scheduler=Scheduler(policy="fixed_share")),
        1,
    ),
    "scheduled, full": (
        L40S_HOST,
        replace(_TWO, vgpu_type="NVIDIA L40S-48Q", scheduler=Scheduler(policy="equal_share")),
        2,
    ),
    "mixed": (L40S_HOST, replace(_TWO, vgpu_type="NVIDIA L40S-12Q", mixed_sizes=True), 1),
    "with parameters": (
        L40S_HOST,
        replace(_TWO, vgpu_type="NVIDIA L40S-48Q", parameters=VgpuParameters(debugging=True)),
        2,
    ),
    "mig_backed": (A100_HOST, replace(_TWO, kind="mig_backed", vgpu_type="GRID A100D-1-20C"), 1),
    "mig_backed, in one GPU instance": (
        shared_instances.HOST,
        replace(_TWO, kind="mig_backed", vgpu_type=shared_instances.PROFILE),
        1,
    ),
    "mig_backed, more than a GPU has": (
        A100_HOST,
        replace(_TWO, kind="mig_backed", vgpu_type="GRID A100D-1-20C", vgpu_count=5),
        2,
    ),
}
"""Host, offering, and on how many GPUs they come to lie."""
_THREE = ("81", "c1", "e1")


def _plane(tmp_path: Path, host: str, buses: tuple[str, ...] = ("81", "c1")) -> ControlPlane:
    gpus = [_GPUS[host](f"0000:{bus}:00.0") for bus in buses]
    made = control_plane(tmp_path, hosts=FakeHosts({f"{host}.test": FakeMachine(machine_id="m1", gpus=gpus)}))
    made.add_host(host)
    return made


@pytest.mark.parametrize("kind", _ASKED)
def test_several_vgpus_come_and_go_together_and_leave_the_host_as_it_was(tmp_path: Path, kind: str) -> None:
    host, offering, gpus = _ASKED[kind]
    plane = _plane(tmp_path, host)
    plane.services.offerings.put(offering, look_up=True)
    before = plane.machine(host).state()

    def done(operation: str | None) -> None:
        plane.engine.drain()
        assert plane.services.operations.get(str(operation)).state == "done"
        assert plane.findings.observe(host) == ()

    done(plane.services.vms.create(create_vm(profile="two")).operation)
    drawn = plane.services.vms.get("default", "train").devices
    assert len({one.gpu for one in drawn}) == gpus
    ((xml, runs),) = plane.machine(host).domains.values()
    assert runs
    assert devices(xml) == tuple(one.name for one in drawn)
    assert len(set(devices(xml))) == offering.vgpu_count
    for verb in ("stop", "start", "restart", "delete"):
        done(getattr(plane.services.vms, verb)("default", "train").operation)
    assert plane.machine(host).state() == before


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    """Two L40S on one host."""
    return _plane(tmp_path, L40S_HOST)


def _made(plane: ControlPlane, name: str, profile: str) -> None:
    plane.services.vms.create(create_vm(name, profile=profile))
    plane.engine.drain()


def test_whoever_asks_about_two_vgpus_hears_the_same(plane: ControlPlane) -> None:
    capacity, question = plane.services.capacity, Question(profile=PROFILE)
    planned = plane.services.vms.plan(create_vm(profile=PROFILE))
    placement = capacity.explain(question).explanation.placement
    assert placement is not None
    assert sorted(planned.gpus) == sorted(placement.gpu_ids) == ["0000:81:00.0", "0000:c1:00.0"]
    assert all(gpu in planned.why for gpu in planned.gpus)
    assert [type(action).__name__ for action in planned.actions].count("MakeVgpu") == 2
    assert [row.fits_now for row in capacity.capacity(question)] == [1]
    assert plane.services.profiles.get(PROFILE).free == 1
    _made(plane, "train", PROFILE)
    held = {(cell.profile, row.gpu) for row in capacity.gpu_map() for cell in row.cells if cell.vm is not None}
    assert held == {("NVIDIA L40S-48Q", "0000:81:00.0"), ("NVIDIA L40S-48Q", "0000:c1:00.0")}


def test_one_gpu_alone_is_refused_to_two_vgpus_of_full_size_by_everybody_with_one_code(plane: ControlPlane) -> None:
    _made(plane, "part", "NVIDIA L40S-12Q")
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(create_vm(profile=PROFILE))
    with pytest.raises(NoCapacity) as planned:
        plane.services.vms.plan(create_vm(profile=PROFILE))
    explained = plane.services.capacity.explain(Question(profile=PROFILE)).explanation
    assert explained.reasons == refused.value.reasons == planned.value.reasons
    assert {reason.code for reason in explained.reasons} == {"gpu.other_size_in_use", "host.devices"}
    assert [row.fits_now for row in plane.services.capacity.capacity(Question(profile=PROFILE))] == [0]
    (remedy,) = explained.remedies
    assert [action.profile for action in remedy.actions] == ["NVIDIA L40S-12Q"]


def test_a_quota_counts_each_of_a_vms_vgpus(tmp_path: Path) -> None:
    plane = _plane(tmp_path, L40S_HOST, _THREE)
    plane.services.tenancy.quotas.change("default", {"vgpus": 1})
    with pytest.raises(QuotaExceeded):
        plane.services.vms.create(create_vm(profile=PROFILE))
    plane.services.tenancy.quotas.change("default", {"vgpus": 2})
    _made(plane, "train", PROFILE)
    with pytest.raises(QuotaExceeded):
        plane.services.vms.create(create_vm("more", profile="NVIDIA L40S-12Q"))


def test_one_vm_that_is_cheap_and_one_that_is_not_give_way_to_two_vgpus_and_the_third_runs_on(tmp_path: Path) -> None:
    plane = _plane(tmp_path, L40S_HOST, _THREE)
    plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    for name in ("oldest", "middle", "newest"):
        plane.services.vms.create(replace(create_vm(name, profile="NVIDIA L40S-48Q"), priority="low"))
        plane.engine.drain()
        plane.world.clock.sleep(3600)
    urgent = replace(create_vm(profile=PROFILE), priority="high", preempt=True)
    assert set(plane.services.vms.plan(urgent).preempts) == {"default/middle", "default/newest"}
    plane.services.vms.create(urgent)
    plane.engine.drain()
    states = {vm.spec.name: vm.state for vm in plane.services.vms.list(None)}
    assert states == {"oldest": "running", "middle": "stopped", "newest": "stopped", "train": "running"}
