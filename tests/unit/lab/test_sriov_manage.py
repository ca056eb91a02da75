# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.lab.fake_gpu_host import ROOT

GPU = "0000:01:00.0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index, (address, total) in enumerate(((GPU, 16), ("0000:02:00.0", 0))):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "sriov_totalvfs").write_text(f"{total}\n")
        (device / "sriov_numvfs").write_text("0\n")
        gpu = tmp_path / f"sys/kernel/vgpu_lab/gpus/{index}"
        gpu.mkdir(parents=True)
        (gpu / "state").write_text(f"bdf {address}\nbound 1\n")
        (gpu / "unbind_lock").write_text("0")
    return tmp_path


def manage(root: Path, *arguments: str) -> tuple[int, str]:
    command = [str(ROOT / "lab/tools/sriov-manage"), *arguments]
    done = subprocess.run(command, env=os.environ | {"VGPU_LAB_ROOT": str(root)}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def vfs(root: Path) -> str:
    return (root / "sys/bus/pci/devices" / GPU / "sriov_numvfs").read_text().strip()


@pytest.mark.parametrize("address", [GPU, "00000000:01:00.0", "ALL"])
def test_all_vfs_come_and_go_and_asking_twice_is_fine(root: Path, address: str) -> None:
    assert [manage(root, "-e", address)[0], manage(root, "-e", address)[0], vfs(root)] == [0, 0, "16"]
    assert [manage(root, "-d", address)[0], manage(root, "-d", address)[0], vfs(root)] == [0, 0, "0"]
    assert (root / "sys/kernel/vgpu_lab/gpus/0/unbind_lock").read_text().strip() == "0"


def test_a_module_that_refuses_the_lock_keeps_its_functions(root: Path) -> None:
    (root / "sys/kernel/vgpu_lab/gpus/0/unbind_lock").unlink()
    (root / "sys/kernel/vgpu_lab/gpus/0/unbind_lock").mkdir()  # nothing can be written there
    assert manage(root, "-e", GPU) == (1, f"Enabling VFs on {GPU}\nCannot obtain unbindLock for {GPU}\n")
    assert vfs(root) == "0"


@pytest.mark.parametrize(
    "arguments, part",
    [
        ((), "Usage: sriov-manage"),
        (("-e",), "Usage: sriov-manage"),
        (("-x", GPU), "Usage: sriov-manage"),
        (("-e", "0000:09:00.0"), "is not found or is not bound"),
        (("-e", "0000:02:00.0"), "does not support SR-IOV"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(root: Path, arguments: tuple[str, ...], part: str) -> None:
    code, said = manage(root, *arguments)
    assert (code, vfs(root)) == (1, "0")
    assert part in said
