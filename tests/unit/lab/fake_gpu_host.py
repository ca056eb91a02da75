# SPDX-License-Identifier: Apache-2.0
"""A directory that looks like a lab host's files to the NVML library and the stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.tools.gpu_tables import read_tables
from lab.tools.load import config_text

ROOT = Path(__file__).parents[3]
CATALOGUE = ROOT / "vgpu_profiles" / "nvidia"


@dataclass(frozen=True)
class FakeGpuHost:
    root: Path
    library: Path

    def state(self, gpu: int, **changes: object) -> None:
        """Say what the module would say of a GPU; sensors and state share the file."""
        values = {"bdf": f"0000:0{gpu + 1}:00.0", "bound": 1, "lost": 0, "heterogeneous": 0, "numa": -1} | changes
        directory = self.root / "sys/kernel/vgpu_lab/gpus" / str(gpu)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "state").write_text("".join(f"{key} {value}\n" for key, value in values.items()))

    def vgpus(self, gpu: int, *lines: str, creatable: str = "") -> None:
        directory = self.root / "sys/kernel/vgpu_lab/gpus" / str(gpu)
        (directory / "vgpus").write_text("".join(f"{line}\n" for line in lines))
        (directory / "creatable").write_text(creatable)

    def python(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python that loads the library, as a process of its own."""
        environment = os.environ | {
            "VGPU_LAB_ROOT": str(self.root),
            "LD_LIBRARY_PATH": str(self.library.parent),
            "PYTHONPATH": str(ROOT / "lab/tools"),
        }
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    def smi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("import sys; from smi.main import main; sys.exit(main(sys.argv[1:]))", *arguments)


def build(root: Path, library: Path, gpus: list[dict[str, Any]], driver: str = "550.90.05") -> FakeGpuHost:
    """A host with these GPUs of a scenario, none of them in use."""
    addresses = [f"0000:0{index + 1}:00.0" for index in range(len(gpus))]
    scenario = {"host": "fake", "driver_version": driver, "gpus": gpus}
    (root / "sys/kernel/vgpu_lab").mkdir(parents=True)
    (root / "run/vgpu-lab").mkdir(parents=True)
    (root / "sys/kernel/vgpu_lab/config").write_text(config_text(scenario, read_tables(CATALOGUE), addresses))
    host = FakeGpuHost(root, library)
    for index in range(len(gpus)):
        host.state(index)
        host.vgpus(index)
    return host
