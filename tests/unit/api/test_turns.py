# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys

PRINTED = """
import gc, sys
from orchestrator.serve import take_short_turns
take_short_turns()
print(sys.getswitchinterval() <= 0.001, gc.get_freeze_count() > 0, gc.get_threshold()[0] <= 5000)
"""


def test_no_thread_of_a_server_keeps_the_interpreter_for_longer_than_a_millisecond() -> None:
    """Else a create that meets a page of looks waits 5 ms at each of its statements."""
    done = subprocess.run([sys.executable, "-c", PRINTED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
