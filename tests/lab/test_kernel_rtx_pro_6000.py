# SPDX-License-Identifier: Apache-2.0
"""Several vGPUs on one GPU instance, as Blackwell's graphics boards have them."""

from __future__ import annotations

import pytest

from tests.lab.conftest import LabHost
from tests.lab.gpu_host import answers, read, write
from tests.lab.test_kernel_a100 import MigGpu

pytestmark = pytest.mark.lab


def test_a_gpu_instance_carries_vgpus_of_one_size_up_to_its_number(rtx_pro_6000: LabHost) -> None:
    gpu = MigGpu(rtx_pro_6000, "NVIDIA RTX PRO 6000 Blackwell Server Edition")
    assert gpu.ask("mode(1)") == [[0, [1, 1]]]
    gpu.vfs("-e")
    first, second = gpu.ask("gi(47, 0, 3)", "gi(47, 9, 3)")
    ids = {name: number for number, _, name in (row.partition(": ") for row in gpu.rows())}
    half, third = ids["NVIDIA RTX Pro 6000 Blackwell DC-1-12A"], ids["NVIDIA RTX Pro 6000 Blackwell DC-1-8A"]
    vfs = [gpu.vf.replace("virtfn0", f"virtfn{number}") for number in range(5)]
    wanted = [half, half, third, third, half]
    said = answers(gpu.host.run, [write(f"{vf}/current_vgpu_type", want) for vf, want in zip(vfs, wanted, strict=True)])
    assert said == ["ok", "ok", "ok", "ok", "EIO"]
    found = answers(gpu.host.run, [read(f"{vf}/gpu_instance_id") for vf in vfs[:4]])
    assert found == [str(first), str(first), str(second), str(second)]
    gpu.vfs("-d")
    assert gpu.ask("mode(0)") == [[0, [0, 0]]]
