# SPDX-License-Identifier: Apache-2.0
"""In which GPU instance a vGPU lies, as its directory in sysfs tells it once it is made, before any VM runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.sysfs import reading

_NO_INSTANCE = 0xFFFFFFFF


@dataclass(frozen=True)
class FoundVgpu:
    """A vGPU that exists, or may exist since its function cannot be read."""

    name: str
    """As a ``<hostdev>`` names it."""
    function: str
    gpu_instance: int | None


def gpu_instance(device: Path) -> int | None:
    """Its id; None: there is no vGPU, it is time-sliced, or the driver does not tell."""
    found = reading.number(device / "nvidia" / "gpu_instance_id")
    return None if found is None or found == _NO_INSTANCE else found
