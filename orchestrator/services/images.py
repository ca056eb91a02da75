# SPDX-License-Identifier: Apache-2.0
"""Base images."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.image import Image


class ImageService(Protocol):
    def add(self, name: str, source: str, sha256: str | None) -> Image:
        """``source`` is an absolute path or an http(s) URL; returns when it is stored and checked."""

    def list(self) -> tuple[Image, ...]: ...

    def get(self, name: str) -> Image:
        """:raises NotFound: ``image.unknown``"""

    def remove(self, name: str) -> None:
        """:raises Conflict: ``image.in_use``"""
