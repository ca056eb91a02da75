# SPDX-License-Identifier: Apache-2.0
"""``python3 -m orchestrator.agent``, and what the zip file starts with."""

from __future__ import annotations

import sys

from orchestrator.agent.main import main

if __name__ == "__main__":
    sys.exit(main())
