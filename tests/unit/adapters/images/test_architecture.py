# SPDX-License-Identifier: Apache-2.0
"""Images for other processors than hosts have: told by the partition table, or by the file's name."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from uuid import UUID

import pytest

from orchestrator.adapters.images.inspecting import inspect
from orchestrator.core.errors import InvalidInput
from orchestrator.core.vms.image import check_file_name

MIB = 1024**2
ARM, X86 = "b921b045-1df0-41c3-af44-4c6f280d3fae", "4f68bce3-e8cd-4db1-96e7-fbcaf984b709"
ESP, LINUX = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "0fc63daf-8483-4772-8e79-3d69d8477de4"
FORMS: dict[str, list[str]] = {
    "raw": [],
    "qcow2": ["-O", "qcow2"],
    "compressed": ["-O", "qcow2", "-c"],
    "small clusters": ["-O", "qcow2", "-o", "cluster_size=32768"],
}


def disk(path: Path, *types: str) -> Path:
    """With a GPT of these partitions."""
    content = bytearray(4 * MIB)
    content[512:520] = b"EFI PART"
    struct.pack_into("<Q", content, 512 + 32, 8191)
    struct.pack_into("<QII", content, 512 + 72, 2, 128, 128)
    for number, one in enumerate(types):
        content[1024 + 128 * number : 1040 + 128 * number] = UUID(one).bytes_le
    path.write_bytes(content)
    return path


def as_form(raw: Path, form: str) -> Path:
    if not FORMS[form]:
        return raw
    made = raw.with_suffix(".qcow2")
    subprocess.run(["qemu-img", "convert", "-f", "raw", *FORMS[form], str(raw), str(made)], check=True)
    return made


@pytest.mark.parametrize("form", FORMS)
def test_a_disk_whose_root_file_system_is_for_other_processors_is_refused(tmp_path: Path, form: str) -> None:
    with pytest.raises(InvalidInput, match="aarch64") as refused:
        inspect(as_form(disk(tmp_path / "a.raw", ESP, ARM), form), None)
    assert refused.value.code == "image.architecture"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("types", [(ESP, X86), (ESP, LINUX), (ARM, X86), ()])
def test_a_disk_that_may_be_for_hosts_is_taken(tmp_path: Path, form: str, types: tuple[str, ...]) -> None:
    assert inspect(as_form(disk(tmp_path / "a.raw", *types), form), None).virtual_bytes == 4 * MIB


@pytest.mark.parametrize(
    "source",
    ["https://example.org/noble-server-cloudimg-arm64.img", "Fedora-Cloud-Base.aarch64-43.qcow2", "/a/x_ppc64el.img"],
)
def test_a_file_whose_name_is_of_another_architecture_is_refused(source: str) -> None:
    with pytest.raises(InvalidInput, match="x86_64"):
        check_file_name(source)


@pytest.mark.parametrize(
    "source", ["noble-amd64.img", "/arm64/debian.qcow2", "charm64.img", "built-on-aarch64-for-x86_64.raw", "a.qcow2"]
)
def test_any_other_file_name_is_fine(source: str) -> None:
    check_file_name(source)
