# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.core.actions.host_actions import ClearVgpuType, MakeVgpu, RemoveMdev
from orchestrator.core.actions.vgpu_settings import ClearVgpuParameters, SetVgpuParameters, vgpu_parameters_text
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.gpu.vgpu_parameters import VgpuParameters
from tests.unit.agent.bench import MDEV, T4, VF1, Bench

ON_MDEV = MakeVgpu(vm="a", uuid=MDEV, parent=T4, type_name="GRID T4-2Q")
ON_FUNCTION = MakeVgpu(vm="a", parent=VF1, type_name="NVIDIA L40S-2Q")
UVM, SLOW = VgpuParameters(uvm=True), VgpuParameters(frame_rate_limiter=True, console=False)


def give(parameters: VgpuParameters, name: str = MDEV, vm: str = "a") -> SetVgpuParameters:
    return SetVgpuParameters(vm=vm, parent=T4 if name == MDEV else VF1, name=name, parameters=parameters)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (UVM, "enable_uvm=1"),
        (VgpuParameters(debugging=True, profiling=True), "enable_debugging=1,enable_profiling=1"),
        (SLOW, "frame_rate_limiter=1,disable_vnc=1"),
        (VgpuParameters(frame_rate_limiter=False), "frame_rate_limiter=0"),
        (VgpuParameters(), ""),
    ],
)
def test_what_leaves_the_drivers_default_is_left_out(parameters: VgpuParameters, text: str) -> None:
    assert vgpu_parameters_text(parameters) == text


@pytest.mark.parametrize(("made", "name"), [(ON_MDEV, MDEV), (ON_FUNCTION, VF1)])
def test_they_are_written_whole_once_and_gone_before_the_vgpu(bench: Bench, made: MakeVgpu, name: str) -> None:
    bench.do(made)
    assert bench.do(give(UVM, name)).changed
    assert bench.host.parameters(name) == "enable_uvm=1"
    assert not bench.do(give(UVM, name)).changed
    bench.host.writes.clear()
    assert bench.do(give(SLOW, name)).changed
    assert bench.host.writes == [("vgpu_params", " "), ("vgpu_params", "frame_rate_limiter=1,disable_vnc=1")]
    assert bench.do(ClearVgpuParameters(vm="a", name=name)).changed
    assert bench.host.parameters(name) == ""
    assert not bench.do(ClearVgpuParameters(vm="a", name=name)).changed
    bench.do(RemoveMdev(vm="a", uuid=MDEV) if name == MDEV else ClearVgpuType(vm="a", vf=VF1))
    assert not bench.do(ClearVgpuParameters(vm="a", name=name)).changed


def test_a_driver_that_leaves_one_out_is_an_error_that_says_which(bench: Bench) -> None:
    bench.do(ON_MDEV)
    bench.host.lacks_parameters = ("enable_uvm=1",)
    with pytest.raises(Fatal) as caught:
        bench.do(give(UVM))
    assert caught.value.code == "vgpu.parameters_refused"
    assert "enable_uvm=1" in str(caught.value.details)


def test_a_vgpu_of_another_vm_or_one_that_is_open_keeps_its_own(bench: Bench) -> None:
    bench.do(ON_MDEV)
    with pytest.raises(Conflict) as foreign:
        bench.do(give(UVM, vm="b"))
    assert foreign.value.code == "vgpu.foreign"
    assert not bench.do(ClearVgpuParameters(vm="b", name=MDEV)).changed
    bench.host.hold_open(bench.host.node_of((mdev_devices(bench.host.paths) / MDEV).resolve()))
    with pytest.raises(Conflict) as used:
        bench.do(give(UVM))
    assert used.value.code == "vgpu.in_use"
    assert bench.host.parameters(MDEV) == ""
