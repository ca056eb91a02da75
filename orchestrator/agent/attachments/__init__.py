# SPDX-License-Identifier: Apache-2.0
"""Devices of VMs on this host, one file per kind; the twin of core/attachments."""

from __future__ import annotations

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.attachments.mdev import MdevDevices
from orchestrator.agent.attachments.vendor_vfio import TypedFunctions


def kinds_of(files: DeviceFiles) -> Kinds:
    """All kinds over the same files and ledger."""
    return {"vendor_vfio": TypedFunctions(files), "mdev": MdevDevices(files)}
