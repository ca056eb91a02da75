# SPDX-License-Identifier: Apache-2.0
"""``python3 -m orchestrator.agent``, and what the zip file starts with."""

from __future__ import annotations

import sys

from orchestrator.agent.entry import start

if __name__ == "__main__":
    sys.exit(start())
