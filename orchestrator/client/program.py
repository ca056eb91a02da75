# SPDX-License-Identifier: Apache-2.0
"""How this program starts itself again: isolated from whatever lies where the command was typed."""

from __future__ import annotations

import sys


def own_program(module: str, *words: str) -> list[str]:
    """The words that run a module of ours. ``-I``: nothing comes from the current directory, PYTHONPATH or user site.

    Without it a file called ``yaml.py`` in the directory somebody works in would run as the server's user.
    """
    return [sys.executable, "-I", "-m", module, *words]
