# SPDX-License-Identifier: Apache-2.0
"""A person settles what is newer on hosts than the restored database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.running import wait_until_it_answers


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    state = tmp_path / "state"
    words = [sys.executable, "-m", "tests.contract.backup.restored_server"]
    process = subprocess.Popen(words, env={**os.environ, "VGPUCTL_STATE": str(state)})
    wait_until_it_answers(process, state)
    yield state
    process.send_signal(signal.SIGKILL)
    process.wait(60)


def vgpuctl(state: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "orchestrator.cli.main", *words, "-o", "json"]
    done = subprocess.run(
        command, env={**os.environ, "VGPUCTL_STATE": str(state)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.fault("F99")
def test_what_is_newer_is_listed_taken_over_and_removed_item_by_item(state: Path) -> None:
    listed = vgpuctl(state, "server", "settle-restored")
    assert sorted(one["kind"] for one in listed) == ["operation", "runs", "vm", "vm"]
    assert listed == vgpuctl(state, "server", "settle-restored"), "nothing changes without an option"
    unwanted = listed[-1]["id"]
    vgpuctl(state, "server", "settle-restored", "--remove", unwanted, "--yes")
    for _ in range(50):
        left = vgpuctl(state, "server", "settle-restored")
        if unwanted not in {one["id"] for one in left}:
            break
    assert unwanted not in {one["id"] for one in left}
    done = vgpuctl(state, "server", "settle-restored", "--take-over", "all")
    assert all(one["done"] for one in done if "take over" in one["ways"])
    (stopped,) = vgpuctl(state, "server", "settle-restored")
    assert "paused" in stopped["what"]
    vgpuctl(state, "start-vm", "paused")
    assert vgpuctl(state, "server", "settle-restored") == []
    assert [one["code"] for one in vgpuctl(state, "doctor") if one["code"] == "host.restored"] == []
    assert len(vgpuctl(state, "list-vms")) == 3
    assert {one["state"] for one in vgpuctl(state, "list-vms")} == {"running"}


def test_an_item_that_is_none_is_refused(state: Path) -> None:
    command = [sys.executable, "-m", "orchestrator.cli.main", "server", "settle-restored", "--remove", "no-such"]
    done = subprocess.run(
        command, env={**os.environ, "VGPUCTL_STATE": str(state)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "[restored.unknown]" in done.stderr) == (4, True), done.stderr
