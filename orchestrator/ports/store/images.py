# SPDX-License-Identifier: Apache-2.0
"""Base images that VMs are made from."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.vms.image import Image


class Images(Protocol):
    def add(self, image: Image) -> None:
        """:raises Conflict: ``image.exists``"""

    def get(self, name: str) -> Image:
        """:raises NotFound: ``image.unknown``"""

    def update(self, image: Image) -> None: ...
    def list(self) -> tuple[Image, ...]: ...
    def remove(self, name: str) -> None: ...
