# SPDX-License-Identifier: Apache-2.0
"""A process that is just becoming another program shows no environment for a moment; it is found all the same."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

from orchestrator.adapters.ansible.play import end_all

BECOMES_ANOTHER = "sh -c 'exec sleep 30' & exec sleep 30"
ROUNDS = 100


def test_all_that_a_run_started_is_gone_at_whatever_moment_it_is_ended(tmp_path: Path) -> None:
    moments = random.Random(1)
    for turn in range(ROUNDS):
        home = tmp_path / str(turn)
        with subprocess.Popen(["sh", "-c", BECOMES_ANOTHER], env={"HOME": str(home), "PATH": os.environ["PATH"]}) as it:
            time.sleep(moments.random() * 0.004)
            end_all(home)
            alive = it.poll() is None
            it.kill()
        assert not alive
        assert not _with_home(home)


def _with_home(home: Path) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _names(entry, home)]


def _names(process: Path, home: Path) -> bool:
    try:
        return b"HOME=" + os.fsencode(home) in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
