# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fakes.running import running_server

ROOT = Path(__file__).parents[3]


def page_here(name: str) -> str:
    """With what the fake server has for what it says."""
    return (ROOT / "docs/howto" / name).read_text().replace("t4-4q", "t4-small").replace("debian-13", "guest")


def test_the_page_about_the_client_does_what_it_says(tmp_path: Path) -> None:
    page = page_here("python-client.md")
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    with running_server(tmp_path / "state") as state:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "VGPUCTL_STATE": str(state)}, cwd=ROOT, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        "running GRID T4-1Q",
        "vm.unknown - there is no VM 'nobody'",
        "['a1', 'a2', 'a3', 'notebook']",
    ]


def test_the_page_about_curl_does_what_it_says(tmp_path: Path) -> None:
    page = page_here("api-with-curl.md")
    program = "set -eu\n" + "\n".join(re.findall(r"```\n(.*?)```", page, re.DOTALL))
    with running_server(tmp_path / "state") as state:
        environment = {"PATH": os.environ["PATH"], "VGPUCTL_STATE": str(state)}
        done = subprocess.run(
            ["bash", "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"actor":"uid:' in done.stdout
    assert '"name":"notebook"' in done.stdout
    assert '"code":"vm.unknown"' in done.stdout
    assert " 404\n" in done.stdout
