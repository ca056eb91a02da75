# SPDX-License-Identifier: Apache-2.0
"""A module that takes long to import is imported when a server has just started, by nobody who waits for it."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Final

_SETTLED_S: Final = 2.0
"""A server that has started for one command has answered it by then."""


def import_later(module: str) -> None:
    """Whoever needs it before imports it then."""
    timer = threading.Timer(_SETTLED_S, import_module, [module])
    timer.daemon = True
    timer.start()
