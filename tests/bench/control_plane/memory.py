# SPDX-License-Identifier: Apache-2.0
"""What this process holds in memory."""

from __future__ import annotations

from pathlib import Path


def memory_mib() -> float:
    """Resident, MiB."""
    words = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return int(words[0]) / 1024
