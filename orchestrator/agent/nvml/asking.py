# SPDX-License-Identifier: Apache-2.0
"""Questions to NVML whose answer may be missing: what a GPU or its driver does not support is absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pynvml

T = TypeVar("T")


def answer_of(function: Callable[[], T]) -> T | None:
    """None: the driver does not say, or what it says is no answer."""
    try:
        return function()
    except (pynvml.NVMLError, ValueError, TypeError, OverflowError):
        return None
