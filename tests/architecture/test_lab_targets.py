# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path


def test_make_test_lab_runs_every_file_of_tests_on_lab_hosts() -> None:
    done = subprocess.run(["make", "--dry-run", "test-lab"], capture_output=True, text=True, check=True)
    named = set(done.stdout.split())
    assert [path for path in map(str, sorted(Path("tests/lab").glob("test_*.py"))) if path not in named] == []
