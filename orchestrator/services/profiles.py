# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from typing import Protocol

from orchestrator.services.messages import ProfileInfo


class ProfileService(Protocol):
    def list(self) -> tuple[ProfileInfo, ...]:
        """Offerings and vGPU types that some host offers now."""

    def get(self, name: str) -> ProfileInfo:
        """:raises InvalidInput: ``profile.unknown`` with near names"""
