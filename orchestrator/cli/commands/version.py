# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl version``"""

from __future__ import annotations

from orchestrator.client.version import VERSION


def version() -> None:
    """Print the version."""
    print(f"vgpuctl {VERSION}")
