# SPDX-License-Identifier: Apache-2.0
"""How programs beside the command line say what is wrong: one line and a hint on standard error."""

from __future__ import annotations

import sys

from orchestrator.core.errors import VgpuctlError


def print_error(error: VgpuctlError) -> None:
    """``error: message [code]``, then the way out if there is one."""
    print(f"error: {error.message} [{error.code}]", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
