# SPDX-License-Identifier: Apache-2.0
"""May a vGPU move: the metadata of both sides and the answer to them, through pynvml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lab.fake_gpu_host import FakeGpuHost, build
from tests.unit.lab.test_nvml_library import ask

COLD, ALL, NONE = 1, 15, 0
HOST_DRIVER, GUEST_DRIVER, GPU = 1, 2, 4
_VGPU = "7 1155 0000:01:00.4 6f0c1b0e-8f7e-4a2c-9f6c-3f1d5c1f8a55 1 0 1 -1"
_VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
_OF_BOTH = (
    "(lambda c: [c.vgpuVmCompatibility, c.compatibilityLimitCode])(n.nvmlGetVgpuCompatibility("
    "n.nvmlVgpuInstanceGetMetadata(7), n.nvmlDeviceGetVgpuMetadata(n.nvmlDeviceGetHandleByIndex(1))))"
)


def pair(root: Path, library: Path, other: str = "L40S") -> FakeGpuHost:
    """Of two GPUs the first has a vGPU."""
    host = build(root, library, [{"model": "L40S"}, {"model": other}])
    host.vgpus(0, _VGPU)
    return host


def versions(oldest: int, newest: int) -> str:
    return f"1024 0 0 {oldest:#x} {newest:#x}"


@pytest.mark.parametrize(
    "of_source, of_target, answer",
    [
        ({}, {}, [ALL, 0]),
        ({"migration": versions(5, 9)}, {"migration": versions(9, 12)}, [ALL, 0]),
        ({"migration": versions(5, 9)}, {"migration": versions(10, 12)}, [COLD, HOST_DRIVER]),
        (
            {"migration": versions(5, 9), "guest_driver": "550.54.14"},
            {"migration": versions(3, 8)},
            [COLD, HOST_DRIVER | GUEST_DRIVER],
        ),
        ({"ecc": 1}, {"ecc": 0}, [COLD, GPU]),
    ],
)
def test_what_limits_a_move(
    tmp_path: Path, nvml_library: Path, of_source: dict[str, object], of_target: dict[str, object], answer: list[int]
) -> None:
    host = pair(tmp_path, nvml_library)
    host.state(0, **of_source)
    host.state(1, **of_target)
    assert ask(host, _OF_BOTH) == answer


def test_another_board_takes_no_such_vgpu_in_any_state(tmp_path: Path, nvml_library: Path) -> None:
    assert ask(pair(tmp_path, nvml_library, "A40"), _OF_BOTH) == [NONE, GPU]


def test_metadata_say_driver_versions_and_how_much_moves(tmp_path: Path, nvml_library: Path) -> None:
    host = pair(tmp_path, nvml_library)
    host.state(0, migration=versions(5, 9), guest_driver="550.54.14")
    vgpu = "(lambda m: [m.hostDriverVersion, m.guestDriverVersion, m.guestInfoState, m.guestVgpuVersion])"
    assert ask(host, f"{vgpu}(n.nvmlVgpuInstanceGetMetadata(7))") == ["550.90.05", "550.54.14", 1, 9]
    gpu = "(lambda r: [r.minVersion, r.maxVersion])(n.nvmlDeviceGetVgpuMetadata(h).hostSupportedVgpuRange)"
    assert ask(host, gpu) == [5, 9]
    assert ask(host, "n.nvmlVgpuInstanceGetRuntimeStateSize(7).size") == 1024 * 1024


_SCRIPT = """
import json
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.nvml.vgpu_metadata import compatibilities
nvml = Nvml()
first, second = nvml.read().gpus.values()
(vgpu,) = first.open_vgpus
answers = compatibilities([[vgpu.metadata, gpu.metadata] for gpu in (first, second)], nvml.change)
print(json.dumps([vgpu.vm, [[answer.states, answer.limits] for answer in answers], first.problems, second.problems]))
"""


def said(host: FakeGpuHost) -> Any:
    cmdline = host.root / "proc/1/cmdline"  # of the vGPU's QEMU
    cmdline.parent.mkdir(parents=True)
    cmdline.write_bytes(f"qemu-system-x86_64\0-uuid\0{_VM}\0".encode())
    done = host.python(_SCRIPT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("of_second", "answer"),
    [({}, [15, 0]), ({"ecc": 0}, [1, 4]), ({"migration": versions(3, 4)}, [1, 1])],
)
def test_a_vgpu_is_judged_for_its_own_gpu_and_for_another_one(
    tmp_path: Path, nvml_library: Path, of_second: dict[str, object], answer: list[int]
) -> None:
    host = pair(tmp_path, nvml_library)
    host.state(0, ecc=1)
    host.state(1, **{"ecc": 1, **of_second})
    vm, answers, *problems = said(host)
    assert vm == _VM
    assert answers == [[15, 0], answer]
    assert problems == [[], []]


def test_another_board_takes_it_not_at_all(tmp_path: Path, nvml_library: Path) -> None:
    assert said(pair(tmp_path, nvml_library, "A40"))[1] == [[15, 0], [0, 4]]
