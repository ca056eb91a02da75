# SPDX-License-Identifier: Apache-2.0
"""What a GPU was before a VM got all of it: written down before anything is changed, read when it is given back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.agent.nvml.reading import GONE_WITH_THE_DRIVER, NvmlGpu
from orchestrator.core.hosts.snapshot import HostVgpuType


def gpu_key(address: str) -> str:
    """Name of a whole GPU in the ledger."""
    return f"gpu:{address}"


@dataclass(frozen=True, kw_only=True)
class FunctionBefore:
    """One PCI function of the GPU."""

    address: str
    driver: str | None
    override: str
    probed: bool = False
    """Which driver had it is not known any more: the kernel finds one, as when the host boots."""


@dataclass(frozen=True, kw_only=True)
class GpuRecord:
    model: str
    functions: tuple[FunctionBefore, ...]
    """The GPU first."""
    had_virtual_functions: bool
    said: NvmlGpu | None
    """By its driver, which cannot be asked while it does not have the GPU: without what is gone with it."""
    persistence: bool = False
    """Its driver kept it initialised though nothing used it."""

    def to_text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> GpuRecord:
        read: dict[str, Any] = json.loads(text)
        stored = read.pop("said")
        functions = tuple(FunctionBefore(**function) for function in read.pop("functions"))
        return cls(**read, functions=functions, said=None if stored is None else _said(stored))


def _said(read: dict[str, Any]) -> NvmlGpu:
    types = tuple(HostVgpuType(**vgpu_type) for vgpu_type in read["types"])
    lists = {name: tuple(read.get(name, ())) for name in ("problems", "mig_profiles")}
    stays = {name: value for name, value in read.items() if name not in GONE_WITH_THE_DRIVER}
    return NvmlGpu(**{**stays, **lists, "types": types})
