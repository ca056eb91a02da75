# SPDX-License-Identifier: Apache-2.0
"""What reading a host costs the host: the agent's sampler on the lab's driver library, 8 GPUs with 8 vGPUs each.

The library reads files where NVIDIA's asks its kernel module; what pynvml and the agent do is the same.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pynvml

from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.nvml.sampling import NvmlSampler
from orchestrator.core.protocol import encode_frame
from orchestrator.core.readings.frame import PERIOD_S, HostFrame, frame_to_dict
from tests.unit.lab.fake_gpu_host import ROOT, FakeGpuHost, build

GPUS, VGPUS, ROUNDS = 8, 8, 20
_T4_2Q = 231


def _host(directory: Path) -> FakeGpuHost:
    """Whose VMs run."""
    subprocess.run(["make", "-s", "-C", str(ROOT / "lab/nvml"), f"O={directory}"], check=True)
    host = build(directory / "root", directory / "libnvidia-ml.so.1", [{"model": "Tesla T4"}] * GPUS)
    for gpu in range(GPUS):
        lines = []
        for number in range(VGPUS):
            instance = gpu * VGPUS + number + 1
            uuid = f"6f0a86b4-54f6-4f0c-9d3c-6d4e8a3c{instance:04x}"
            lines.append(f"{instance} {_T4_2Q} 0000:0{gpu + 1}:00.0 {uuid} 1 65535 {instance} -1")
            cmdline = host.root / f"proc/{instance}/cmdline"
            cmdline.parent.mkdir(parents=True)
            cmdline.write_bytes(f"qemu\0-uuid\0{uuid}\0".encode())
        host.vgpus(gpu, *lines)
    return host


def _measured(sampler: NvmlSampler, gpus: dict[str, str]) -> dict[str, float]:
    """Seconds of a processor for each frame, as a share of the period."""
    readings = sampler.read(gpus) or ()
    assert len(readings) == GPUS * (1 + VGPUS)
    began, began_at = time.process_time(), time.perf_counter()
    size = 0
    for _ in range(ROUNDS):
        frame = HostFrame(taken_at=0.0, readings=sampler.read(gpus) or ())
        size = len(encode_frame({"readings": frame_to_dict(frame)}))
    used_s = (time.process_time() - began) / ROUNDS
    return {
        "core_percent": 100 * used_s / PERIOD_S,
        "frame_kib": size / 1024,
        "read_s": (time.perf_counter() - began_at) / ROUNDS,
    }


def sampling() -> Mapping[str, float]:
    """``core_percent``: what one of the host's cores is busy with it."""
    with tempfile.TemporaryDirectory() as name:
        host = _host(Path(name))
        os.environ["VGPU_LAB_ROOT"] = str(host.root)
        pynvml.nvmlLib = pynvml.CDLL(str(host.library))
        sampler = NvmlSampler(Nvml(), lambda _gpu, _start: "")
        return _measured(sampler, {f"0000:0{gpu + 1}:00.0": "" for gpu in range(GPUS)})
