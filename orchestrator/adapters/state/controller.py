# SPDX-License-Identifier: Apache-2.0
"""The name of this controller among those of one database: the same after every restart."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path


def controller_name(state: Path) -> str:
    """Host name, and which of its state directories."""
    place = hashlib.sha256(str(state.resolve()).encode()).hexdigest()
    return f"{socket.gethostname()[:63]}-{place[:8]}"
