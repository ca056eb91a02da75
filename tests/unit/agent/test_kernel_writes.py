# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.agent.sysfs.write import is_being_written, write, write_errno
from orchestrator.core.errors import Fatal, Unknown


def test_a_value_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "create"
    file.write_text("")
    write(file, "0b9c1a9e")
    assert file.read_text() == "0b9c1a9e"


def test_the_kernels_errno_comes_back_as_a_number(tmp_path: Path) -> None:
    assert write_errno(tmp_path / "missing", "1") == errno.ENOENT
    assert write_errno(tmp_path, "1") == errno.EISDIR
    with pytest.raises(Fatal) as refused:
        write(tmp_path / "missing", "1")
    assert refused.value.code == "vgpu.function_gone"
    assert "ENOENT" in str(refused.value.details)


@pytest.mark.fault("F52")
@pytest.mark.parametrize(("name", "value"), [("create", "0b9c1a9e"), ("remove", "1")])
def test_a_write_that_does_not_return_is_unknown_and_does_not_hold_us_up(tmp_path: Path, name: str, value: str) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)  # opening it for writing waits for a reader that never comes
    with pytest.raises(Unknown) as hung:
        write(pipe, value, limit_s=0.3)
    assert hung.value.code == "vgpu.create_hung"


def test_a_write_that_still_hangs_is_seen_by_whoever_asks(tmp_path: Path) -> None:
    paths, pipe, other = Paths(root=Path("/"), storage=tmp_path), tmp_path / "current_vgpu_type", tmp_path / "other"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write, args=(pipe, "1148"))
    writer.start()
    for _ in range(2000):
        if is_being_written(paths, pipe):
            break
        time.sleep(0.01)
    else:
        pytest.fail("the write was not seen")
    assert not is_being_written(paths, other)
    assert pipe.read_text() == "1148"
    writer.join(60)
    assert not is_being_written(paths, pipe)


def test_a_child_gets_arguments_as_they_are_and_no_input() -> None:
    finished = run(["sh", "-c", 'cat; printf "%s" "$1"; exit 3', "sh", "$(id); *"], limit_s=60)
    assert (finished.code, finished.output) == (3, "$(id); *")


def test_a_child_that_does_not_end_is_told_to_die() -> None:
    with pytest.raises(ChildHangs):
        run(["sleep", "60"], limit_s=0.2)
