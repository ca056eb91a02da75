# SPDX-License-Identifier: Apache-2.0
"""Switching a host's power off from outside, so that it is certain that nothing of it runs."""

from __future__ import annotations

from typing import Protocol


class Fencing(Protocol):
    """Safe to call from many threads."""

    def knows(self, host: str) -> bool:
        """Whether it was told how that host is switched off."""

    def power_off(self, host: str) -> str:
        """Returns once its power is seen to be off, with what to tell people. Off already is fine.

        :raises Conflict: ``fence.not_configured``, ``fence.readable``, ``fence.no_agent``
        :raises Retryable: ``fence.failed``: nothing is known of its power"""
