# SPDX-License-Identifier: Apache-2.0
"""What to do when the driver logs an Xid.

The driver's own recovery action (Xid 154, NVML ``nvmlDeviceGetGpuRecoveryAction``) overrides this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quarantine = Literal["yes", "no", "ask_driver", "unknown"]
"""``ask_driver``: the Xid announces a recovery action, read that. ``unknown``: newer than our table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class XidAction:
    """The recommendation for one Xid."""

    xid: int
    name: str
    action: str | None
    """NVSentinel's word for it (``RESET_GPU``, ``RESTART_BM``, ``IGNORE`` …)."""
    fatal: bool | None
    quarantine: Quarantine
    source: str
    notes: str


def unknown_xid(xid: int) -> XidAction:
    """The entry for an Xid that no table has: no action is invented."""
    return XidAction(
        xid=xid, name="unknown", action=None, fatal=None, quarantine="unknown", source="none", notes=""
    )  # fmt: skip
