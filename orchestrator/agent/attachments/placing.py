# SPDX-License-Identifier: Apache-2.0
"""Where a vGPU lies, as its directory in sysfs tells it once it is made, and vGPUs at chosen places of a GPU with mixed
sizes.

The driver puts a new vGPU at the first place that is free, and moves it when its ``placement_id`` is written. So one
vGPU of a GPU is made and moved at a time: on its way it may lie where the next one shall.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.sysfs import pci, reading
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, VgpuctlError

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
    number = reading.number(device / "nvidia" / "gpu_instance_id")
    return None if number is None or number == _NO_INSTANCE else number


_NO_PLACE = 0xFFFF
"""nvml.h, nvmlVgpuInstanceGetPlacementId: it has none."""


def placement_id(device: Path) -> int | None:
    """Of the vGPU whose directory in sysfs this is; None: the driver does not say."""
    number = reading.number(device / "nvidia" / "placement_id")
    return None if number is None or number >= _NO_PLACE else number


class VgpuPlaces:
    """Of all GPUs of the host."""

    def __init__(self, files: DeviceFiles) -> None:
        self._files = files
        self._locks: dict[str, threading.Lock] = {}

    def make(
        self,
        wanted: int,
        function: str,
        device: Path,
        *,
        make: Callable[[], ActionResult],
        remove: Callable[[], object],
    ) -> ActionResult:
        """``wanted``: its placement id. ``device``: its directory in sysfs once it is there. One that the driver does
        not move is taken back.

        :raises Conflict: ``vgpu.placement_refused``, ``vgpu.in_use``, and those of ``make``
        """
        self._files.check_managed(function)
        gpu = pci.physical_gpu(self._files.paths, function)
        with self._locks.setdefault(gpu, threading.Lock()):
            made = make()
            if placement_id(device) == wanted:
                return made
            self._files.check_unused(device, function)
            try:
                self._move(device, wanted)
            except VgpuctlError:
                remove()
                raise
        return ActionResult(changed=True)

    def _move(self, device: Path, wanted: int) -> None:
        def is_there() -> bool:
            return placement_id(device) == wanted

        refused = self._files.refusal(device / "nvidia" / "placement_id", str(wanted), done=is_there)
        if not is_there():
            raise Conflict(
                "vgpu.placement_refused",
                f"the driver does not put the vGPU at placement {wanted} of its GPU",
                hint="'vgpuctl gpu map' shows what lies where; 'vgpuctl doctor' looks at the host again",
                details=f"it says {placement_id(device)}" + (f": {refused}" if refused else ""),
            )
