# SPDX-License-Identifier: Apache-2.0
"""The wall around what must not end with its work: a thread of its own, one host of many, one connection of many."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Contained:
    """No exception that is raised inside goes further: ``told`` gets it. What ends the process itself does."""

    def __init__(self, told: Callable[[Exception], object]) -> None:
        self._told = told

    def __enter__(self) -> None:
        """Nothing has gone wrong yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._told(error)
        return True
