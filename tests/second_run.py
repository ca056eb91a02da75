# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.second_run``: what failed in the run just made, again and alone, one after the other.

A few tests of real processes among thousands fail because of what ran beside them. They are to be mended, but say
nothing of the commit; one that fails alone, too, does. More than :data:`MOST` failures are no accident.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

MOST = 3
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """The exit status: 0 when each passed alone, 1 when one failed or they are too many."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        return 1
    print(f"\nagain, alone: {', '.join(failed)}", flush=True)
    if pytest.main(["-n", "0", *failed]) != pytest.ExitCode.OK:
        return 1
    print(f"FAILED BESIDE OTHERS, PASSED ALONE, TO BE MENDED: {', '.join(failed)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
