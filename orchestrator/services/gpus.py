# SPDX-License-Identifier: Apache-2.0
"""GPUs of all hosts, with what is free and used."""

from __future__ import annotations

from typing import Protocol

from orchestrator.services.messages import GpuInfo


class GpuService(Protocol):
    def list(self, host: str | None) -> tuple[GpuInfo, ...]: ...

    def get(self, host: str, address: str) -> GpuInfo:
        """:raises NotFound: ``gpu.unknown``"""
