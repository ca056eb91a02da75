# SPDX-License-Identifier: Apache-2.0
"""A GPU takes vGPUs of several sizes as long as VMs want that, and each lies where it was planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.core.actions.host_actions import (
    ClearVgpuType,
    EnableVirtualFunctions,
    MakeVgpu,
    ManageGpus,
    StartDomain,
    VgpuPosition,
)
from orchestrator.core.actions.vgpu_settings import RestoreMixedSizes, SetMixedSizes
from orchestrator.core.errors import Conflict, Denied, Fatal
from tests.unit.agent.bench import L40S, MDEV, T4, VF1, Bench
from tests.unit.agent.test_restore import Machine

VF2 = "0000:02:00.2"
TYPE = "NVIDIA L40S-2Q"


def want(vm: str, gpu: str = L40S) -> SetMixedSizes:
    return SetMixedSizes(vm=vm, gpu=gpu)


def leave(vm: str) -> RestoreMixedSizes:
    return RestoreMixedSizes(vm=vm, gpu=L40S)


def placed(vm: str, start: int, vf: str = VF1) -> MakeVgpu:
    return MakeVgpu(vm=vm, parent=vf, type_name=TYPE, at=VgpuPosition(within="gpu", start=start))


@pytest.fixture
def bench(bare: Bench) -> Bench:
    return bare


def test_it_is_on_from_the_first_vm_to_the_last(bench: Bench) -> None:
    assert bench.do(want("a")).changed
    assert not bench.do(want("a")).changed
    bench.do(placed("a", 0))
    assert not bench.do(want("b")).changed
    assert not bench.do(leave("b")).changed
    bench.do(ClearVgpuType(vm="a", vf=VF1))
    assert bench.mixed_sizes.now == {L40S: True}
    assert bench.do(leave("a")).changed
    assert not bench.do(leave("a")).changed
    assert bench.mixed_sizes.now == {L40S: False}


def test_a_gpu_that_mixed_sizes_before_goes_on_with_it(bench: Bench) -> None:
    bench.mixed_sizes.now[L40S] = True
    assert not bench.do(want("a")).changed
    assert not bench.do(leave("a")).changed
    assert bench.mixed_sizes.sets == []


@pytest.mark.fault("F55")
def test_a_gpu_with_a_vgpu_on_it_is_left_as_it_is_whoever_made_that(bench: Bench) -> None:
    bench.do(MakeVgpu(vm="x", parent=VF1, type_name=TYPE))
    with pytest.raises(Conflict) as caught:
        bench.do(want("a"))
    assert (caught.value.code, bench.mixed_sizes.sets) == ("gpu.in_use", [])


def test_a_vgpu_of_somebody_else_keeps_it_until_the_gpu_is_given_back(bench: Bench) -> None:
    bench.do(want("a"))
    bench.host.set_type(VF2, 1148)
    answer = bench.do(leave("a"))
    assert (answer.changed, "for now" in answer.message) == (False, True)
    bench.host.set_type(VF2, 0)
    bench.do(ManageGpus(gpus=(T4,)))
    assert bench.mixed_sizes.now == {L40S: False}


def test_a_driver_that_says_yes_and_does_otherwise_is_not_believed(bench: Bench) -> None:
    bench.mixed_sizes.deaf = True
    with pytest.raises(Fatal) as caught:
        bench.do(want("a"))
    assert caught.value.code == "gpu.mixed_sizes_refused"
    assert not bench.do(leave("a")).changed


def test_a_gpu_that_cannot_or_is_not_ours_is_refused_by_name(bench: Bench) -> None:
    with pytest.raises(Fatal) as caught:
        bench.do(want("a", T4))
    assert caught.value.code == "gpu.no_mixed_sizes"
    bench.do(ManageGpus(gpus=(T4,)))
    with pytest.raises(Denied):
        bench.do(want("a"))


def test_a_vgpu_is_moved_from_where_the_driver_put_it_to_where_it_was_planned(bench: Bench) -> None:
    bench.do(want("a"))
    assert bench.do(placed("a", 24)).changed
    assert not bench.do(placed("a", 24)).changed
    assert bench.do(placed("b", 0, VF2)).changed
    assert (bench.host.place(VF1), bench.host.place(VF2)) == ("24", "0")
    made = MakeVgpu(vm="c", uuid=MDEV, parent=T4, type_name="GRID T4-2Q", at=VgpuPosition(within="gpu", start=4))
    assert bench.do(made).changed
    assert not bench.do(made).changed
    assert bench.host.place(MDEV) == "4"


def test_one_that_the_driver_does_not_move_is_taken_back_and_said_where_it_lay(bench: Bench) -> None:
    bench.host.holds_places = True
    with pytest.raises(Conflict) as caught:
        bench.do(placed("a", 24))
    assert (caught.value.code, bench.host.place(VF1)) == ("vgpu.placement_refused", "")
    assert "it says 0" in str(caught.value.details)
    assert "vf" not in bench.owners()
    made = MakeVgpu(vm="c", uuid=MDEV, parent=T4, type_name="GRID T4-2Q", at=VgpuPosition(within="gpu", start=4))
    with pytest.raises(Conflict):
        bench.do(made)
    assert not (mdev_devices(bench.host.paths) / MDEV).exists()


def test_one_that_a_vm_has_open_is_neither_moved_nor_taken_back(bench: Bench) -> None:
    bench.do(placed("a", 0))
    bench.host.hold_open(bench.host.node_of(bench.host.paths.pci(VF1)))
    with pytest.raises(Conflict) as caught:
        bench.do(placed("a", 24))
    assert (caught.value.code, bench.host.place(VF1)) == ("vgpu.in_use", "0")


@pytest.mark.fault("F58")
def test_anothers_vgpu_is_not_moved(bench: Bench) -> None:
    bench.do(placed("a", 0))
    with pytest.raises(Conflict) as caught:
        bench.do(placed("b", 24))
    assert (caught.value.code, bench.host.place(VF1)) == ("vgpu.foreign", "0")


@pytest.mark.fault("F18")
def test_after_a_reboot_the_same_vgpus_lie_at_the_same_places(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.libvirt.devices["a"] = VF1
    machine.do(EnableVirtualFunctions(gpu=L40S), want("a"), placed("a", 24), StartDomain(vm="a"))
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    assert machine.host.place(VF1) == "24"
    assert machine.switches.mixed.now == {L40S: True}
