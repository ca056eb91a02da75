# SPDX-License-Identifier: Apache-2.0
"""Ports of the loopback that must be known before their server begins, or that none may ever answer on."""

from __future__ import annotations

import socket
from typing import Final

_KEPT: Final[list[socket.socket]] = []


def own_port() -> int:
    """Where nothing listens until a program of the test does, which may end and begin again.

    A bound socket that does not listen is kept until this process ends: to nobody who asks for any port does the kernel
    give that one meanwhile, and a server that names it, with SO_REUSEADDR as all have it, may listen there."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _KEPT.append(kept)
    return int(kept.getsockname()[1])
