# SPDX-License-Identifier: Apache-2.0
"""While much is computed in one go, other threads get the interpreter more often.

Whoever asks the database gives the interpreter back at each question and waits for it after each: for five milliseconds
while another thread computes. For all of a server's work turns that long are right, since changing hands costs time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SHORT_S: Final = 0.001
_lock = threading.Lock()
_usual: list[float] = []
"""What was usual when each of the blocks under way began; the first one is what is usual."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Inside, no thread of this process computes for longer than a millisecond while others wait."""
    with _lock:
        _usual.append(_usual[0] if _usual else sys.getswitchinterval())
        sys.setswitchinterval(SHORT_S)
    try:
        yield
    finally:
        with _lock:
            usual = _usual.pop()
            if not _usual:
                sys.setswitchinterval(usual)
