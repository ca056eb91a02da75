# SPDX-License-Identifier: Apache-2.0
"""Trying again: bounded, with growing pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from orchestrator.core.errors import Retryable, Unknown, VgpuctlError
from orchestrator.operations.context import Limits
from orchestrator.ports.clock import Clock

T = TypeVar("T")


def retry(
    effect: Callable[[], T],
    *,
    observe: Callable[[], object],
    clock: Clock,
    limits: Limits,
    before_pause: Callable[[], None],
) -> T:
    """What ``effect`` returns, tried again after Retryable and after Unknown.

    ``before_pause`` may raise to leave. Each further try observes the host first where an answer of it was lost.
    Effects are idempotent, so doing again is what decides between *it happened* and *it did not*.
    """
    pause = limits.first_pause
    unknown = False
    for tries_left in reversed(range(limits.tries)):
        try:
            observe()
            return effect()
        except (Retryable, Unknown) as error:
            unknown = unknown or isinstance(error, Unknown)
            if not tries_left:
                raise _most_telling(error, unknown=unknown) from error
        before_pause()
        clock.sleep(pause)
        pause *= 2
    raise AssertionError("limits.tries is at least 1")


def _most_telling(error: VgpuctlError, *, unknown: bool) -> VgpuctlError:
    """An effect whose answer was lost once stays unknown, even when the last try could not reach the host."""
    if not unknown or isinstance(error, Unknown):
        return error
    return Unknown(error.code, error.message, hint=error.hint, details=error.details, reasons=error.reasons)
