# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def _confined(file: Path, script: str) -> str:
    """What a shell says that may read ``file`` alone."""
    words = [sys.executable, "-I", "-m", "orchestrator.adapters.images.confined", str(file), "bash", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("image", "other"):
        (tmp_path / name).write_text(f"content of {name}")
    return tmp_path / "image"


def test_a_confined_program_reads_its_file_and_no_other(file: Path) -> None:
    said = _confined(file, f"cat {file}; cat {file.with_name('other')}; ls {file.parent}; cat /proc/1/environ")
    assert "content of image" in said
    assert "content of other" not in said
    assert said.count("ermission denied") == 3


def test_a_confined_program_writes_nothing(file: Path) -> None:
    said = _confined(file, f"echo x > {file.with_name('new')}; echo x >> {file}; rm {file}; mkdir {file.parent}/d")
    assert said.count("ermission denied") == 4, said
    assert sorted(path.name for path in file.parent.iterdir()) == ["image", "other"]
    assert file.read_text() == "content of image"


def test_a_confined_program_reaches_no_network_and_no_other_process(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        said = _confined(file, f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached")
    assert "reached" not in said
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        said = _confined(file, f"kill {sleeper.pid} && echo sent")
        assert sleeper.poll() is None
        sleeper.kill()
    assert "sent" not in said


def test_a_confined_program_has_bounds(file: Path) -> None:
    assert _confined(file, "ulimit -v; ulimit -t; ulimit -f; ulimit -c; ulimit -n").split() == [
        "2097152", "300", "0", "0", "64",
    ]  # fmt: skip
