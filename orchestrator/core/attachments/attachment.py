# SPDX-License-Identifier: Apache-2.0
"""What every attachment kind provides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from orchestrator.core.host_actions import HostAction
from orchestrator.core.snapshot import GpuSnapshot
from orchestrator.core.vm import Device


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """Pure functions of one kind."""

    draw: Callable[[GpuSnapshot, str, frozenset[str], str], Device | None]
    """(GPU, vGPU type, functions taken by claims, fresh UUID) → the device to make."""
    create: Callable[[str, Device], HostAction]
    """(VM id, device) → the action that makes it; ``core.host_actions.inverse`` removes it."""
    still_free: Callable[[GpuSnapshot, Device, str], bool]
    """(GPU, device, VM id): whether it can be made there now, or is there and ours."""
    hostdev: Callable[[Device], Element]
    """The domain's ``<hostdev>``."""
