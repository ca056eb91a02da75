# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.observing import Dcgm
from orchestrator.agent.paths import Paths


def _program(root: Path, script: str) -> Path:
    program = root / "usr/bin/dcgmi"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\necho asked >> {root}/asked\n{script}\n")
    program.chmod(0o755)
    return program


def test_the_version_is_asked_once_for_each_program(tmp_path: Path) -> None:
    dcgm = Dcgm(Paths(root=tmp_path, storage=tmp_path / "storage"))
    assert dcgm.version() is None
    _program(tmp_path, "printf 'dcgmi  version: 4.4.1\\n\\nCompiled...\\n'")
    assert (dcgm.version(), dcgm.version()) == ("4.4.1", "4.4.1")
    assert (tmp_path / "asked").read_text() == "asked\n"
    _program(tmp_path, "echo 'Version: no'; echo 'dcgmi  version: 4.5.0'")
    assert dcgm.version() == "4.5.0"


@pytest.mark.parametrize("script", ["exit 1", "echo nothing", "yes 'version 4'", "echo 'version: x; rm'"])
def test_a_program_that_says_nothing_useful_is_no_version(tmp_path: Path, script: str) -> None:
    _program(tmp_path, script)
    assert Dcgm(Paths(root=tmp_path, storage=tmp_path / "storage")).version() is None
