# SPDX-License-Identifier: Apache-2.0
"""Devices of VMs on this host, one file per kind; the twin of core/attachments."""

from __future__ import annotations

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.attachments.mdev import MdevDevices
from orchestrator.agent.attachments.mig_backed import MigBackedVgpus
from orchestrator.agent.attachments.passthrough import WholeGpus
from orchestrator.agent.attachments.vendor_vfio import TypedFunctions
from orchestrator.agent.fabric.fmpm import Fmpm
from orchestrator.agent.fabric.partitions import FabricPartitions
from orchestrator.agent.nvml.mig import Mig
from orchestrator.agent.nvml.reading import Driver


def kinds_of(files: DeviceFiles, mig: Mig, driver: Driver) -> Kinds:
    """All kinds over the same files and ledger."""
    typed, mdevs = TypedFunctions(files), MdevDevices(files)
    parts: Kinds = {
        "vendor_vfio": typed,
        "mdev": mdevs,
        "mig_backed": MigBackedVgpus(files, typed, mdevs, mig),
    }
    fabric = FabricPartitions(files, Fmpm(files.paths))
    return {**parts, "passthrough": WholeGpus(files, driver, parts.values(), fabric)}
