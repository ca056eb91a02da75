# SPDX-License-Identifier: Apache-2.0
"""A package puts a newer QEMU in the place of the one that VMs run by."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from orchestrator.agent.observing import is_replaced
from orchestrator.agent.paths import Paths

NAME = "default.train"


def test_a_vm_runs_on_by_the_qemu_that_it_was_started_with(tmp_path: Path) -> None:
    installed, run = tmp_path / "qemu-system-x86_64", tmp_path / "run/libvirt/qemu"
    run.mkdir(parents=True)
    (tmp_path / "proc").symlink_to("/proc")
    shutil.copy("/bin/sleep", installed)
    paths = Paths(root=tmp_path, storage=tmp_path / "storage")
    with subprocess.Popen([installed, "60"]) as process:
        try:
            assert not is_replaced(paths, NAME), "libvirt has none of that name"
            (run / f"{NAME}.pid").write_text(f"{process.pid}\n")
            assert not is_replaced(paths, NAME)
            shutil.copy("/bin/sleep", tmp_path / "newer")
            (tmp_path / "newer").rename(installed)  # as dpkg does
            assert is_replaced(paths, NAME)
        finally:
            process.kill()
    assert not is_replaced(paths, NAME), "it has ended"
