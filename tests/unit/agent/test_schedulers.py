# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.core.actions.host_actions import MakeVgpu, ManageGpus, RemoveMdev
from orchestrator.core.actions.vgpu_settings import RestoreVgpuScheduler, SetVgpuScheduler
from orchestrator.core.errors import Conflict, Denied, Fatal
from orchestrator.core.gpu.vgpu_parameters import SchedulerPolicy, SchedulerState
from tests.fakes.fake_gpu_settings import BEST_EFFORT
from tests.unit.agent.bench import L40S, MDEV, T4, Bench

VGPU = MakeVgpu(vm="a", uuid=MDEV, parent=T4, type_name="GRID T4-2Q")


def want(vm: str, policy: SchedulerPolicy = "fixed_share", time_slice_ms: int | None = 5) -> SetVgpuScheduler:
    return SetVgpuScheduler(vm=vm, gpu=T4, policy=policy, time_slice_ms=time_slice_ms)


def leave(vm: str) -> RestoreVgpuScheduler:
    return RestoreVgpuScheduler(vm=vm, gpu=T4)


@pytest.fixture
def bench(bare: Bench) -> Bench:
    return bare


def test_it_is_set_for_the_first_vm_kept_for_the_others_and_as_before_after_the_last(bench: Bench) -> None:
    assert bench.do(want("a")).changed
    assert not bench.do(want("a")).changed
    assert not bench.do(want("b")).changed
    assert bench.schedulers.now[T4] == SchedulerState(policy="fixed_share", time_slice_us=5000)
    assert not bench.do(leave("a")).changed
    assert bench.schedulers.now[T4].policy == "fixed_share"
    assert bench.do(leave("b")).changed
    assert bench.schedulers.now[T4] == BEST_EFFORT
    assert not bench.do(leave("b")).changed
    assert bench.schedulers.now[L40S] == BEST_EFFORT


def test_what_a_gpu_was_before_comes_back_and_not_what_drivers_usually_are(bench: Bench) -> None:
    bench.schedulers.now[T4] = before = SchedulerState(policy="equal_share", time_slice_us=3000)
    bench.do(want("a"))
    bench.do(leave("a"))
    assert bench.schedulers.now[T4] == before


def test_a_gpu_with_a_vgpu_on_it_is_left_as_it_is_whoever_made_that(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    with pytest.raises(Conflict) as caught:
        bench.do(want("a"))
    assert caught.value.code == "gpu.in_use"
    assert bench.schedulers.sets == []
    assert not bench.do(leave("a")).changed


def test_what_is_so_already_needs_no_empty_gpu(bench: Bench) -> None:
    bench.do(want("a"))
    bench.do(VGPU)
    assert not bench.do(want("b")).changed
    with pytest.raises(Conflict):
        bench.do(want("c", "equal_share", None))
    assert bench.schedulers.now[T4].policy == "fixed_share"


def test_a_vgpu_of_somebody_else_keeps_it_as_it_is_until_the_gpu_is_given_back(bench: Bench) -> None:
    bench.do(want("a"))
    bench.host.make_mdev(T4, "nvidia-231", MDEV)
    answer = bench.do(leave("a"))
    assert not answer.changed
    assert "stays" in answer.message
    bench.host.write((mdev_devices(bench.host.paths) / MDEV).resolve() / "remove", "1")
    bench.do(ManageGpus(gpus=(L40S,)))
    assert bench.schedulers.now[T4] == BEST_EFFORT


def test_a_driver_that_says_yes_and_does_otherwise_is_not_believed(bench: Bench) -> None:
    bench.schedulers.deaf = True
    with pytest.raises(Fatal) as caught:
        bench.do(want("a"))
    assert caught.value.code == "gpu.scheduler_refused"
    assert "best effort" in str(caught.value.details)


def test_a_gpu_without_schedulers_or_not_ours_is_refused(bench: Bench) -> None:
    del bench.schedulers.now[T4]
    with pytest.raises(Fatal) as caught:
        bench.do(want("a"))
    assert caught.value.code == "gpu.no_scheduler"
    bench.do(ManageGpus(gpus=(L40S,)))
    with pytest.raises(Denied):
        bench.do(want("a"))


def test_removing_the_vgpu_and_then_the_wish_leaves_the_gpu_as_it_was(bench: Bench) -> None:
    bench.do(want("a"))
    bench.do(VGPU)
    bench.do(RemoveMdev(vm="a", uuid=MDEV))
    assert bench.do(leave("a")).changed
    assert bench.schedulers.now[T4] == BEST_EFFORT
