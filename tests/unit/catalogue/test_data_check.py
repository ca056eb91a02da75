# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import shipped
from tests.unit.catalogue.data_check import differences

CAPTURES = Path(__file__).parent / "captures"


def test_the_tables_have_all_that_the_captures_say() -> None:
    assert differences(shipped(), CAPTURES) == []


@pytest.mark.parametrize(
    ("file", "was", "becomes", "line"),
    [
        ("gb300_qx.xml", "284208", "97871", "gpu_models.csv has no NVIDIA GB300 (31c2:21f1, 97871 MiB)"),
        ("gb300_qx.xml", "31C2", "FFFF", "gpu_models.csv has no NVIDIA GB300 (ffff:21f1, 284208 MiB)"),
        ("l40s_creatable_vgpu_types", "48Q", "48Z", "vgpu_types.csv has no NVIDIA L40S-48Z"),
        ("l40s_creatable_vgpu_types", "1156", "1256",
         "vgpu_types.csv, NVIDIA L40S-48Q: type_id is 1156, the driver says 1256"),
        ("mdev_supported_types/nvidia-746/description", "4096M", "4000M",
         "vgpu_types.csv, NVIDIA A2-4Q: framebuffer_mib is 4096, the driver says 4000"),
        ("mdev_supported_types/nvidia-746/description", "instance=4", "instance=5",
         "vgpu_types.csv, NVIDIA A2-4Q: max_per_gpu is 4, the driver says 5"),
        ("a100_lgip.txt", "3g.20gb        9", "3g.21gb        9",
         "mig_profiles.csv, A100 40GB (SXM4/PCIe): no 3g.21gb with id 9, 2 at most"),
        ("a100_lgip.txt", "7/7", "8/8", "mig_profiles.csv, A100 40GB (SXM4/PCIe): no 1g.5gb with id 19, 8 at most"),
    ],
)  # fmt: skip
def test_what_a_driver_says_otherwise_is_one_line(file: str, was: str, becomes: str, line: str, tmp_path: Path) -> None:
    shutil.copytree(CAPTURES, tmp_path, dirs_exist_ok=True)
    path = tmp_path / file
    path.write_text(path.read_text(encoding="utf-8").replace(was, becomes), encoding="utf-8")
    assert differences(shipped(), tmp_path) == [f"{file}: {line}"]
