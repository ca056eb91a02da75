# SPDX-License-Identifier: Apache-2.0
"""Files that drivers are installed from."""

from __future__ import annotations

from typing import Protocol

from orchestrator.core.drivers.bundle import DriverBundle


class DriverBundles(Protocol):
    def add(self, bundle: DriverBundle) -> None: ...

    def find(self, sha256: str) -> DriverBundle | None: ...

    def list(self) -> tuple[DriverBundle, ...]:
        """By kind and version, the newest of one version first."""

    def remove(self, sha256: str) -> None:
        """Gone already is fine."""
