# SPDX-License-Identifier: Apache-2.0
"""Where the program starts: the relay at once, everything else through main.py."""

from __future__ import annotations

import os
import sys


def start() -> int:
    """Exit code."""
    if sys.argv[1:2] == ["relay"] and len(sys.argv) <= 3:
        from orchestrator.agent.relay import DEFAULT_SOCKET, relay

        return relay(sys.argv[2] if len(sys.argv) == 3 else DEFAULT_SOCKET, os.environ.get("SSH_ORIGINAL_COMMAND"))
    from orchestrator.agent.main import main

    return main()
