# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.chaos.server …``: `vgpuctl serve` on a machine whose wall clock somebody moves.

``CLOCK_AHEAD`` names a file with the seconds.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_FILE = Path(os.environ["CLOCK_AHEAD"])
_now = time.time


def moved() -> float:
    return _now() + float(_FILE.read_text() or 0)


if __name__ == "__main__":
    vars(time)["time"] = moved
    from orchestrator.server.serve import main

    sys.exit(main())
