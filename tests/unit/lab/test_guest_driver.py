# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import tarfile
from pathlib import Path

from lab.driver.guest import write_guest_bundle
from orchestrator.adapters.bundles.library import content_of


def test_the_labs_guest_driver_is_taken_for_one_and_brings_all_that_its_script_names(tmp_path: Path) -> None:
    path = write_guest_bundle(tmp_path, "550.163.01")
    content = content_of(path)
    assert (content.kind, content.version, content.format) == ("vgpu_guest", "550.163.01", "run")
    script, _, packed = path.read_bytes().partition(b"\n@@ARCHIVE@@\n")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = set(archive.getnames())
    brought = {name for name in names if f"$work/{name}".encode() in script}
    assert names == brought | {"Kbuild", "nvidia.c"}
