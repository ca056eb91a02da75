# SPDX-License-Identifier: Apache-2.0
"""What every attachment kind provides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.gpu.device import Device, ObservedDevice
from orchestrator.core.hosts.snapshot import GpuSnapshot


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """Pure functions of one kind."""

    draw: Callable[[GpuSnapshot, str, frozenset[str], str], Device | None]
    """(GPU, vGPU type, functions taken by claims, fresh UUID) → the device to make."""
    make: Callable[[str, Device], tuple[HostAction, ...]]
    """(VM id, device) → the actions that make it, in order; their inverses backwards remove it."""
    still_free: Callable[[GpuSnapshot, Device, str], bool]
    """(GPU, device, VM id): whether it can be made there now, or is there and ours."""
    observed: Callable[[GpuSnapshot], Iterator[ObservedDevice]]
    """Devices of the kind that exist on the GPU."""
    hostdev: Callable[[Device], Element]
    """The domain's ``<hostdev>``."""
    changes_gpu: bool = False
    """Whether the GPU itself is another one while a VM has such a device: its mode, its driver, its instances."""
