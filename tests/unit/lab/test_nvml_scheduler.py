# SPDX-License-Identifier: Apache-2.0
"""The scheduler's state through pynvml: what goes to the module, what comes back, what is refused before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.lab.fake_gpu_host import FakeGpuHost, build
from tests.unit.lab.test_nvml_library import ask

GET = (
    "(lambda s: [s.schedulerPolicy, s.arrMode, s.schedulerParams.vgpuSchedData.timeslice])"
    "(n.nvmlDeviceGetVgpuSchedulerState(h))"
)
GET_2 = (
    "(lambda s: [s.schedulerPolicy, s.avgFactor, s.timeslice])"
    "(n.nvmlDeviceGetVgpuSchedulerState_v2(h, n.c_nvmlVgpuSchedulerStateInfo_v2_t(1)))"
)


@pytest.fixture
def host(tmp_path: Path, nvml_library: Path) -> FakeGpuHost:
    return _host(tmp_path, nvml_library, "550.163.02")


def _host(root: Path, library: Path, driver: str) -> FakeGpuHost:
    host = build(root, library, [{"model": "L40S"}], driver)
    (root / "sys/kernel/vgpu_lab/gpus/0/scheduler").touch()
    return host


def written(host: FakeGpuHost) -> str:
    return (host.root / "sys/kernel/vgpu_lab/gpus/0/scheduler").read_text()


def set_(policy: int, arr: int = 0, first: int = 0, second: int = 0) -> str:
    state = f"n.c_nvmlVgpuSchedulerSetState_t({policy}, {arr})"
    fill = f"s.schedulerParams.vgpuSchedDataWithARR.__init__({first}, {second})"
    return f"(lambda s: [{fill}, tried(lambda: n.nvmlDeviceSetVgpuSchedulerState(h, s))][1])({state})"


def test_a_gpu_that_nobody_set_gives_its_best_effort(host: FakeGpuHost) -> None:
    assert ask(host, GET) == [1, 0, 2_000_000]


@pytest.mark.parametrize(
    "call, text",
    [
        (set_(3), "3 0 0 0 2000000"),
        (set_(3, first=5_000_000), "3 0 0 0 5000000"),
        (set_(2, 2, 40, 500), "2 2 40 500 2000000"),
        (set_(1), "1 0 0 0 2000000"),
    ],
)
def test_a_state_goes_to_the_module_with_defaults_filled_in(host: FakeGpuHost, call: str, text: str) -> None:
    assert ask(host, call) == 0
    assert written(host) == text


@pytest.mark.parametrize(
    "call", [set_(0), set_(4), set_(1, 2), set_(3, first=999), set_(2, 2, 61, 100), set_(2, 2, 1, 9)]
)
def test_a_state_beyond_the_limits_is_refused(host: FakeGpuHost, call: str) -> None:
    assert ask(host, call) == "NVMLError_InvalidArgument"
    assert written(host) == ""


def test_what_the_module_keeps_is_read_back(host: FakeGpuHost) -> None:
    host.state(0, scheduler="3 0 0 0 4000000")
    assert ask(host, GET) == [3, 0, 4_000_000]


def test_the_second_version_of_the_calls_needs_a_new_driver(host: FakeGpuHost, tmp_path: Path) -> None:
    assert ask(host, f"tried(lambda: {GET_2})") == "NVMLError_FunctionNotFound"
    newer = _host(tmp_path / "newer", host.library, "595.58.02")
    newer.state(0, scheduler="3 2 33 480 2083333")
    assert ask(newer, GET_2) == [3, 33, 2_083_333]
    new = "n.nvmlDeviceSetVgpuSchedulerState_v2(h, n.c_nvmlVgpuSchedulerState_v2_t(1, 2, 10, 100))"
    assert ask(newer, new) == 0
    assert written(newer) == "2 2 10 100 10000000"
