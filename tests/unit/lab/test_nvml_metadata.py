# SPDX-License-Identifier: Apache-2.0
"""May a vGPU move: the metadata of both sides and the answer to them, through pynvml."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.lab.fake_gpu_host import FakeGpuHost, build
from tests.unit.lab.test_nvml_library import ask

COLD, ALL, NONE = 1, 15, 0
HOST_DRIVER, GUEST_DRIVER, GPU = 1, 2, 4
_VGPU = "7 1155 0000:01:00.4 6f0c1b0e-8f7e-4a2c-9f6c-3f1d5c1f8a55 1 0 1 -1"
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
