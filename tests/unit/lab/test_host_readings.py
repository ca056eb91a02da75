# SPDX-License-Identifier: Apache-2.0
"""The agent's readings on the lab's driver library, loaded into this process: what a frame says is what NVML says."""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest

from orchestrator.agent.nvml import sampling
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.nvml.sampling import HANGS, NvmlSampler
from orchestrator.core.readings.frame import HostFrame, Reading, frame_from_dict, frame_to_dict
from tests.unit.lab.fake_gpu_host import FakeGpuHost, build

T4, HOPPER = "0000:01:00.0", "0000:02:00.0"
GPUS = {T4: "", HOPPER: ""}
T4_2Q = 231
VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
MDEV = "6f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b11"
PID = 4711


@dataclass
class Scene:
    host: FakeGpuHost
    nvml: Nvml
    sampler: NvmlSampler

    def read(self) -> dict[tuple[str, str], Reading]:
        """By kind and id."""
        readings = self.sampler.read(GPUS)
        assert readings is not None
        return {(reading.kind, reading.id): reading for reading in readings}

    def gpu(self, address: str) -> Reading:
        """As it is read now."""
        gpus = [reading for (kind, _), reading in self.read().items() if kind == "gpu"]
        return next(reading for reading in gpus if reading.facts.get("pci_address") == address)

    def runs_a_vm(self) -> None:
        """With a vGPU on the first GPU."""
        self.host.vgpus(0, f"7 {T4_2Q} {T4} {MDEV} 1 65535 {PID} -1")
        cmdline = self.host.root / f"proc/{PID}/cmdline"
        cmdline.parent.mkdir(parents=True)
        cmdline.write_bytes(f"qemu-system-x86_64\0-uuid\0{VM}\0".encode())


@pytest.fixture
def scene(tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    host = build(tmp_path, nvml_library, [{"model": "Tesla T4"}, {"model": "H100 PCIe 80GB"}])
    library = ctypes.CDLL(str(nvml_library))
    monkeypatch.setenv("VGPU_LAB_ROOT", str(tmp_path))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    nvml = Nvml()
    yield Scene(host, nvml, NvmlSampler(nvml, lambda _gpu, start: "" if start is None else f"vm-at-{start}"))
    for gpu in range(2):
        host.state(gpu)
    _until(lambda: library.nvmlShutdown() == pynvml.NVML_ERROR_UNINITIALIZED)


def _until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not happens():
        assert time.monotonic() < end, "an NVML client was left open"
        time.sleep(0.02)


SAID = {
    "utilization": 70, "memory_utilization": 31, "encoder_utilization": 5, "decoder_utilization": 6,
    "temperature_c": 61, "memory_temperature_c": 72, "power_mw": 61500, "energy_mj": 12345000,
    "clock_graphics_mhz": 1590, "clock_memory_mhz": 5001, "ecc": 1, "ecc_corrected": 3, "ecc_uncorrected": 1,
    "clocks_limited_power_ns": 2_500_000_000, "clocks_limited_thermal_ns": 1_000_000, "pcie_replays": 9,
    "pcie_width": 8, "pcie_generation": 4, "pcie_sent_bytes": 4096, "rows_corrected": 2, "remap_pending": 1,
    "recovery_action": 2, "banks_low": 1, "nvlinks": 2, "nvlink_down": 1, "nvlink_errors": 4, "gpm_sm": 55,
}  # fmt: skip
READ = {
    ("gpu_utilization_ratio", ""): 0.70,
    ("gpu_memory_copy_ratio", ""): 0.31,
    ("gpu_encoder_ratio", ""): 0.05,
    ("gpu_decoder_ratio", ""): 0.06,
    ("gpu_temperature_celsius", "gpu"): 61,
    ("gpu_temperature_celsius", "memory"): 72,
    ("gpu_temperature_margin_celsius", ""): 93 - 61,
    ("gpu_temperature_limit_celsius", "memory_max"): 95,
    ("gpu_power_watts", ""): 61.5,
    ("gpu_energy_joules_total", ""): 12345,
    ("gpu_clock_hertz", "graphics"): 1590e6,
    ("gpu_clock_hertz", "memory"): 5001e6,
    ("gpu_ecc_errors_total", "corrected"): 3,
    ("gpu_ecc_errors_total", "uncorrected"): 1,
    ("gpu_clock_limited_seconds_total", "power"): 2.5,
    ("gpu_clock_limited_seconds_total", "thermal"): 0.001,
    ("gpu_pcie_replays_total", ""): 9,
    ("gpu_pcie_link_width", ""): 8,
    ("gpu_pcie_link_generation", ""): 4,
    ("gpu_pcie_sent_bytes_total", ""): 4096,
    ("gpu_remapped_rows", "corrected"): 2,
    ("gpu_remap_pending", ""): 1,
    ("gpu_remap_banks", "low"): 1,
    ("gpu_recovery_action", "node_reboot"): 1,
    ("gpu_recovery_action", "gpu_reset"): 0,
    ("gpu_nvlink_up", "0"): 1,
    ("gpu_nvlink_up", "1"): 0,
    ("gpu_nvlink_errors_total", "0"): 12,
    ("gpu_sm_active_ratio", ""): 0.55,
    ("gpu_memory_total_bytes", ""): 80 * 1024**3,
    ("gpu_vgpus", ""): 0,
}
"""Of a GPU whose driver says :data:`SAID`."""


@pytest.mark.parametrize("key", READ, ids="-".join)
def test_what_the_driver_says_is_read_in_base_units(scene: Scene, key: tuple[str, str]) -> None:
    scene.host.state(1, **SAID)
    assert scene.gpu(HOPPER).get(*key) == pytest.approx(READ[key])


def test_what_a_gpu_does_not_support_is_absent_and_not_nought(scene: Scene) -> None:
    turing = scene.gpu(T4)
    for name, label in (
        ("gpu_temperature_celsius", "memory"), ("gpu_temperature_limit_celsius", "memory_max"),
        ("gpu_temperature_margin_celsius", ""), ("gpu_sm_active_ratio", ""), ("gpu_remap_pending", ""),
        ("gpu_remap_banks", "max"), ("gpu_recovery_action", "gpu_reset"), ("gpu_nvlink_up", "0"),
        ("gpu_pcie_sent_bytes_total", ""), ("gpu_fabric_completed", ""),
    ):  # fmt: skip
        assert turing.get(name, label) is None, name
    assert min(turing.numbers) >= 0
    assert len(turing.keys) > 20


def test_a_controller_knows_every_quantity_that_is_read(scene: Scene) -> None:
    scene.host.state(1, **SAID)
    scene.runs_a_vm()
    sent = HostFrame(taken_at=1.0, readings=tuple(scene.read().values()))
    heard = frame_from_dict(frame_to_dict(sent))
    for before, after in zip(sent.readings, heard.readings, strict=True):
        assert set(before.keys) == set(after.keys)


def test_a_vgpu_names_its_vm_and_has_numbers_of_its_own(scene: Scene) -> None:
    scene.runs_a_vm()
    (scene.host.root / "run/vgpu-lab/licences").write_text(f"{VM} 2027 1 2 3 4 5\n")
    scene.host.state(
        0, vgpu_sm=42, vgpu_memory=7, vgpu_memory_used_mib=5000, guest_driver="550.90.07", vgpu_encoder_sessions=2
    )
    read = scene.read()
    vgpu = read["vgpu", MDEV]
    gpu = read["gpu", vgpu.gpu]
    assert (vgpu.vm, vgpu.facts) == (VM, {"vgpu_type": "GRID T4-2Q", "guest_driver_version": "550.90.07"})
    assert dict(zip(vgpu.keys, vgpu.numbers, strict=True)) == {
        ("vgpu_sm_ratio", ""): 0.42,
        ("vgpu_memory_copy_ratio", ""): 0.07,
        ("vgpu_encoder_ratio", ""): 0.0,
        ("vgpu_decoder_ratio", ""): 0.0,
        ("vgpu_memory_total_bytes", ""): 2048 * 1024**2,
        ("vgpu_memory_used_bytes", ""): 5000 * 1024**2,
        ("vgpu_frame_rate_limit", ""): 60.0,
        ("vgpu_encoder_sessions", ""): 2.0,
        ("vgpu_licensed", ""): 1.0,
        ("vgpu_license_expiry_timestamp_seconds", ""): 1798859045.0,
    }
    assert gpu.get("gpu_vgpus") == 1
    assert gpu.get("gpu_utilization_ratio") == pytest.approx(0.42)


def test_a_guest_without_a_driver_and_licence_has_neither_version_nor_expiry(scene: Scene) -> None:
    scene.runs_a_vm()
    vgpu = scene.read()["vgpu", MDEV]
    assert "guest_driver_version" not in vgpu.facts
    assert vgpu.get("vgpu_licensed") == 0
    assert vgpu.get("vgpu_license_expiry_timestamp_seconds") is None


def test_a_vgpu_whose_vm_has_just_ended_is_left_out(scene: Scene) -> None:
    scene.host.vgpus(0, f"7 {T4_2Q} {T4} {MDEV} 1 65535 {PID} -1")
    assert [kind for kind, _ in scene.read()] == ["gpu", "gpu"]
    assert scene.gpu(T4).get("gpu_vgpus") == 1, "the driver still has it"


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_GPU_LIMIT_S", 0.3)


@pytest.mark.usefixtures("short_limit")
def test_a_gpu_that_hangs_silences_itself_alone_and_comes_back(scene: Scene) -> None:
    names = {reading.id for reading in scene.read().values()}
    scene.host.state(0, hangs=1)
    before = threading.active_count()
    for _ in range(3):
        hung, well = sorted(scene.read().values(), key=lambda reading: not reading.silent)
        assert {hung.id, well.id} == names
        assert (hung.silent, len(hung.numbers), well.silent) == (HANGS, 0, "")
        assert well.get("gpu_sm_active_ratio") is not None
    assert threading.active_count() <= before + 1, "a hung GPU costs one thread, however often it is read"
    scene.host.state(0)
    _until(lambda: all(not reading.silent for reading in scene.read().values()))


@pytest.mark.usefixtures("short_limit")
def test_where_all_gpus_hang_all_are_silent_and_the_agent_goes_on(scene: Scene) -> None:
    scene.read()
    for gpu in range(2):
        scene.host.state(gpu, hangs=1)
    assert [reading.silent for reading in scene.read().values()] == [HANGS, HANGS]
    with scene.nvml.closed():
        scene.host.state(0)
        scene.host.state(1)


def test_a_lost_gpu_says_so(scene: Scene) -> None:
    scene.read()
    scene.host.state(1, lost=1)
    lost = next(reading for reading in scene.read().values() if reading.silent)
    assert (lost.silent, len(lost.numbers)) == ("the driver says: GPU is lost", 0)
    assert lost.facts == {"pci_address": HOPPER}


def test_without_a_driver_the_gpus_that_are_known_are_silent(scene: Scene) -> None:
    (scene.host.root / "sys/kernel/vgpu_lab/config").unlink()
    readings = scene.sampler.read({T4: "GPU-1", HOPPER: ""})
    said = [(reading.id, reading.silent, reading.facts) for reading in readings or ()]
    assert said == [("GPU-1", HANGS, {"pci_address": T4})]


def test_nothing_is_read_while_the_agent_changes_something(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_WAIT_S", 0.05)
    with scene.nvml.closed():
        assert scene.sampler.read(GPUS) is None
    assert scene.sampler.read(GPUS) is not None


def test_what_stays_is_asked_once_until_another_driver_may_be_loaded(scene: Scene) -> None:
    scene.host.state(1, pcie_width_max=16)
    assert scene.gpu(HOPPER).get("gpu_pcie_link_width_max") == 16
    scene.host.state(1, pcie_width_max=8)
    assert scene.gpu(HOPPER).get("gpu_pcie_link_width_max") == 16
    scene.sampler.forget()
    assert scene.gpu(HOPPER).get("gpu_pcie_link_width_max") == 8


MIG = """mode 1 1
gi 5 15 2
ci 5 0 0 0 11111111-2222-4333-8444-555555555500
"""
"""One instance of two of eight memory slots, from the third on."""


def test_gpu_instances_are_told_of_by_themselves_with_their_vm(scene: Scene) -> None:
    whole = scene.gpu(HOPPER)
    assert whole.get("gpu_utilization_ratio") is not None
    (scene.host.root / "sys/kernel/vgpu_lab/gpus/1/mig").write_text(MIG)
    scene.host.state(1, gpm_sm=40)
    read = scene.read()
    instance = read["gpu_instance", f"{whole.id}/5"]
    assert (instance.gpu, instance.vm) == (whole.id, "vm-at-2")
    assert instance.get("gpu_instance_sm_active_ratio") == pytest.approx(0.4)
    assert instance.get("gpu_instance_memory_total_bytes") == 20090 * 1024**2
    assert read["gpu", whole.id].get("gpu_utilization_ratio") is None, "the driver tells none in MIG mode"


class Refusing:
    """The library, some of whose functions answer with an error or are not there at all."""

    def __init__(self, library: ctypes.CDLL, refused: dict[str, int]) -> None:
        self._library, self._refused = library, refused

    def __getattr__(self, name: str) -> object:
        code = self._refused.get(name)
        if code is None:
            return getattr(self._library, name)
        if code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise AttributeError(name)
        return lambda *_arguments: code


NEEDED = frozenset(
    {"nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetUUID"}
)
REFUSALS = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_driver_refuses_is_absent_and_all_else_is_as_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    scene.host.state(1, **SAID, pcie_received_bytes=5)
    scene.runs_a_vm()
    scene.host.state(0, energy_mj=7000, vgpu_sm=5)
    full = {name: dict(zip(reading.keys, reading.numbers, strict=True)) for name, reading in scene.read().items()}
    called = sorted(set(pynvml._nvmlGetFunctionPointer_cache) - NEEDED)
    draw = random.Random(seed)
    refused = {name: draw.choice(REFUSALS) for name in draw.sample(called, draw.randint(1, len(called)))}
    monkeypatch.setattr(pynvml, "nvmlLib", Refusing(pynvml.nvmlLib, refused))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    scene.sampler.forget()
    less = {name: dict(zip(reading.keys, reading.numbers, strict=True)) for name, reading in scene.read().items()}
    assert {name for name, _ in less} <= {name for name, _ in full}
    for name, numbers in less.items():
        assert {key: value for key, value in numbers.items() if name not in full or full[name].get(key) != value} == {}
    missing = sum(map(len, full.values())) - sum(map(len, less.values()))
    assert missing > 0, refused
