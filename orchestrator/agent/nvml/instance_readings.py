# SPDX-License-Identifier: Apache-2.0
"""What the GPU instances of a GPU do now, through the MIG devices in them. NVML is open meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pynvml

from orchestrator.agent.nvml.asking import answer_of


@dataclass(frozen=True)
class InstanceMemory:
    """``start``: memory slot that the instance begins at, which the ledger knows it by; bytes."""

    id: int
    start: int | None
    used: float
    total: float


def instance_memory(device: Any) -> tuple[InstanceMemory, ...]:
    """Of all that have a compute instance; none outside MIG mode."""
    count = answer_of(lambda: int(pynvml.nvmlDeviceGetMaxMigDeviceCount(device))) or 0
    handles = (answer_of(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)) for index in range(count))
    instances: dict[int, InstanceMemory] = {}
    for handle in handles:
        number = None if handle is None else answer_of(partial(pynvml.nvmlDeviceGetGpuInstanceId, handle))
        memory = None if number is None else answer_of(partial(pynvml.nvmlDeviceGetMemoryInfo, handle))
        if number is not None and memory is not None:
            start = answer_of(partial(_start, device, int(number)))
            instances[int(number)] = InstanceMemory(int(number), start, float(memory.used), float(memory.total))
    return tuple(instances.values())


def _start(device: Any, number: int) -> int:
    handle = pynvml.nvmlDeviceGetGpuInstanceById(device, number)
    return int(pynvml.nvmlGpuInstanceGetInfo(handle).placement.start)
