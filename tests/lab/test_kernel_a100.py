# SPDX-License-Identifier: Apache-2.0
"""MIG and MIG-backed vGPUs of a lab host: what NVML, sysfs and /proc show of them to a caller of pynvml."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.lab.conftest import LabHost, lab
from tests.lab.gpu_host import answers, gpu_address, read, write

pytestmark = pytest.mark.lab

_PRELUDE = """
import fcntl, json, pynvml as n, subprocess, sys
n.nvmlInit()
h = n.nvmlDeviceGetHandleByPciBusId(sys.argv[1])
def tried(call):
    try:
        return call()
    except n.NVMLError as error:
        return type(error).__name__.removeprefix("NVMLError_")
def gi(profile, start, size):
    place = n.c_nvmlGpuInstancePlacement_t(start, size)
    make = lambda: n.nvmlDeviceCreateGpuInstanceWithPlacement(h, profile, n.byref(place))
    return tried(lambda: n.nvmlGpuInstanceGetInfo(make()).id)
def of(id):
    return n.nvmlDeviceGetGpuInstanceById(h, id)
def ci(id, profile):
    made = lambda: n.nvmlGpuInstanceCreateComputeInstance(of(id), profile)
    return tried(lambda: n.nvmlComputeInstanceGetInfo(made()).id)
def drop(id, compute=None):
    if compute is None:
        return tried(lambda: n.nvmlGpuInstanceDestroy(of(id)))
    return tried(lambda: n.nvmlComputeInstanceDestroy(n.nvmlGpuInstanceGetComputeInstanceById(of(id), compute)))
def mode(value):
    return [tried(lambda: n.nvmlDeviceSetMigMode(h, value)), n.nvmlDeviceGetMigMode(h)]
def left(profile):
    return tried(lambda: n.nvmlDeviceGetGpuInstanceRemainingCapacity(h, profile))
def migs():
    devices = []
    while tried(lambda: devices.append(n.nvmlDeviceGetMigDeviceHandleByIndex(h, len(devices)))) is None:
        pass
    return [n.nvmlDeviceGetName(device) for device in devices]
print(json.dumps(ANSWERS))
"""


class MigGpu:
    """The last GPU of a model on the host."""

    def __init__(self, host: LabHost, model: str) -> None:
        self.host = host
        self.address = gpu_address(host.run, model)
        self.vf = f"/sys/bus/pci/devices/{self.address}/virtfn0/nvidia"
        host.send(Path(inspect.getfile(pynvml)), "/tmp/pynvml.py")

    def ask(self, *expressions: str) -> list[object]:
        """What each expression gave, one NVML client for all of them."""
        script = _PRELUDE.replace("ANSWERS", f"[{', '.join(expressions)}]")
        self.host.run(f"cat >/tmp/ask.py <<'END'\n{script}END")
        answered: list[object] = json.loads(self.host.run(f"python3 /tmp/ask.py {self.address}"))
        return answered

    def vfs(self, switch: str) -> None:
        self.host.run(f"/usr/lib/nvidia/sriov-manage {switch} {self.address}")

    def rows(self) -> list[str]:
        """``ID: NAME`` of what can be created now."""
        lines = self.host.run(f"cat {self.vf}/creatable_vgpu_types").strip().splitlines()[1:]
        return [": ".join(part.strip() for part in line.split(":")) for line in lines]

    def creatable(self) -> set[str]:
        return {row.partition(": ")[2] for row in self.rows()}


@pytest.fixture(scope="module")
def mig_gpu(a100: LabHost) -> MigGpu:
    return MigGpu(a100, "NVIDIA A100 80GB PCIe")


@pytest.fixture
def mig(mig_gpu: MigGpu) -> Iterator[MigGpu]:
    """Virtual functions and MIG are off before and after each test."""
    assert mig_gpu.ask("mode(1)") == [[0, [1, 1]]]
    yield mig_gpu
    mig_gpu.vfs("-e")
    mig_gpu.vfs("-d")  # a change of their number ends vGPUs and GPU instances
    assert mig_gpu.ask("mode(0)") == [[0, [0, 0]]]


def test_a_mode_that_needs_a_reset_stays_pending_while_somebody_holds_the_driver(mig: MigGpu) -> None:
    other = "import pynvml, sys; pynvml.nvmlInit(); print(flush=True); sys.stdin.read()"
    start = f'subprocess.Popen([sys.executable, "-c", {other!r}], stdin=-1, stdout=-1, cwd="/tmp")'
    held, _, pending, _, _, off, on = mig.ask(
        f"bool(globals().__setitem__('p', {start}))", "p.stdout.readline() and 1", "mode(0)", "p.communicate() and 1",
        "p.wait()", "mode(0)", "mode(1)",
    )  # fmt: skip
    assert not held
    assert pending == [pynvml.NVML_ERROR_IN_USE, [1, 0]]
    assert (off, on) == ([0, [0, 0]], [0, [1, 1]])


def test_gpu_instances_are_made_at_legal_free_places_only_and_leave_room_for_what_fits(mig: MigGpu) -> None:
    assert mig.ask("gi(15, 0, 2)", "gi(15, 1, 2)", "gi(15, 0, 2)", "gi(9, 0, 4)", "gi(9, 4, 4)", "left(15)",
                   "left(19)", "gi(19, 2, 1)", "gi(14, 2, 2)", "left(0)") == [
        5, "InvalidArgument", "InsufficientResources", "InsufficientResources", 1, 1, 2, 13,
        "InsufficientResources", 0,
    ]  # fmt: skip


def test_a_profile_with_the_media_engines_is_there_once(mig: MigGpu) -> None:
    assert mig.ask("gi(20, 0, 1)", "left(20)", "gi(20, 1, 1)", "gi(19, 1, 1)") == [
        11, 0, "InsufficientResources", 12
    ]  # fmt: skip


def test_compute_instances_share_their_gpu_instance_and_keep_it_alive(mig: MigGpu) -> None:
    assert mig.ask("gi(9, 4, 4)", "ci(1, 1)", "ci(1, 1)", "ci(1, 3)", "migs()", "drop(1)", "drop(1, 0)", "drop(1)") == [
        1, 0, "InsufficientResources", "InvalidArgument", ["NVIDIA A100 80GB PCIe MIG 2c.3g.40gb"], "InUse", 0, 0
    ]  # fmt: skip


def test_every_instance_has_its_device_file_numbers_below_proc(mig: MigGpu) -> None:
    mig.ask("gi(9, 4, 4)", "ci(1, 0)")
    root = "/proc/driver/nvidia/capabilities"
    found = mig.host.run(f"cd {root}; find . -name access -o -path './mig/*' | sort").split()
    assert found == ["./gpu1/mig/gi1/access", "./gpu1/mig/gi1/ci0/access", "./mig/config", "./mig/monitor"]
    # 3 + 135 for the first GPU + 9 a GPU instance + 1 + the compute instance
    assert "DeviceFileMinor: 148\n" in mig.host.run(f"cat {root}/gpu1/mig/gi1/ci0/access")
    mig.ask("drop(1, 0)", "drop(1)")
    assert "gi1" not in mig.host.run(f"find {root}")


def test_a_mig_backed_type_appears_with_its_gpu_instance_and_holds_it(mig: MigGpu) -> None:
    mig.vfs("-e")
    assert mig.creatable() == set()
    assert answers(mig.host.run, [write(f"{mig.vf}/current_vgpu_type", "1054")]) == ["EIO"]
    assert mig.ask("gi(15, 4, 2)") == [3]
    assert mig.creatable() == {"GRID A100D-1-20C"}
    assert answers(mig.host.run, [
        write(f"{mig.vf}/current_vgpu_type", "1054"), read(f"{mig.vf}/gpu_instance_id"),
        read(f"{mig.vf.replace('virtfn0', 'virtfn1')}/creatable_vgpu_types"),
    ]) == ["ok", "3", "ID    : vGPU Name"]  # fmt: skip
    assert mig.ask("drop(3)", "mode(0)") == ["InUse", [pynvml.NVML_ERROR_IN_USE, [1, 0]]]
    assert answers(mig.host.run, [write(f"{mig.vf}/current_vgpu_type", "0")]) == ["ok"]
    assert mig.ask("drop(3)") == [0]


def test_one_of_four_leaves_and_two_smaller_ones_take_its_place(mig: MigGpu) -> None:
    mig.vfs("-e")
    mig.ask(*(f"gi(15, {start}, 2)" for start in (0, 2, 4, 6)))
    vfs = [mig.vf.replace("virtfn0", f"virtfn{number}") for number in range(5)]
    assert answers(mig.host.run, [write(f"{vf}/current_vgpu_type", "1054") for vf in vfs[:4]]) == ["ok"] * 4
    taken = answers(mig.host.run, [read(f"{vfs[1]}/gpu_instance_id"), write(f"{vfs[1]}/current_vgpu_type", "0")])
    assert mig.ask(f"drop({taken[0]})", "gi(19, 2, 1)", "gi(19, 3, 1)") == [0, 13, 14]
    assert answers(mig.host.run, [write(f"{vfs[number]}/current_vgpu_type", "699") for number in (1, 4)]) == ["ok"] * 2
    assert {int(answers(mig.host.run, [read(f"{vfs[n]}/gpu_instance_id")])[0]) for n in (1, 4)} == {13, 14}


def test_time_sliced_types_and_mixed_sizes_are_not_for_a_gpu_in_mig_mode(mig: MigGpu) -> None:
    mig.vfs("-e")
    mig.ask("gi(15, 0, 2)")
    assert all(name.count("-") == 2 for name in mig.creatable())
    assert mig.ask("tried(lambda: n.nvmlDeviceSetVgpuHeterogeneousMode(h, 1))") == ["NotSupported"]


def test_sriov_manage_ends_all_gpu_instances(mig: MigGpu) -> None:
    mig.ask("gi(9, 0, 4)", "ci(2, 2)")
    mig.vfs("-e")
    assert mig.ask("migs()", "left(9)") == [[], 2]
    mig.ask("gi(9, 0, 4)")
    mig.vfs("-d")
    assert mig.ask("left(9)") == [2]


def test_the_board_keeps_its_mode_over_a_reboot_and_nothing_else(mig: MigGpu) -> None:
    mig.vfs("-e")
    assert mig.ask("gi(15, 0, 2)") == [5]
    lab("reboot", mig.host.name)
    assert mig.ask("n.nvmlDeviceGetMigMode(h)", "left(15)", "migs()") == [[1, 1], 4, []]
    assert answers(mig.host.run, [read(f"/sys/bus/pci/devices/{mig.address}/sriov_numvfs")]) == ["0"]
