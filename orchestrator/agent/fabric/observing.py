# SPDX-License-Identifier: Apache-2.0
"""The fabric as the snapshot shows it. What cannot be asked is a problem of the fabric, not of the observation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.agent.fabric.fmpm import FabricManager, Waits
from orchestrator.agent.fabric.partitions import PREFIX, wrong_version
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.core.errors import VgpuctlError
from orchestrator.core.fabric import FabricSnapshot
from orchestrator.core.snapshot import GpuSnapshot


def observe_fabric(
    paths: Paths, ledger: Ledger, manager: FabricManager, gpus: Iterable[GpuSnapshot]
) -> FabricSnapshot | None:
    """None: no GPU is on a baseboard (its module id is 0 then, nvml.h), or nothing of a fabric manager is there."""
    if not any(gpu.module_id for gpu in gpus):
        return None
    version = None
    try:
        if not manager.there():
            return None
        version = manager.version()
        found = manager.partitions()
    except Waits:
        return FabricSnapshot(version=version, problem="the fabric manager is not ready yet")
    except VgpuctlError as error:
        return FabricSnapshot(version=version, problem=error.message)
    owners = {number: owner.vm for number, owner in ledger.owned(PREFIX).items()}
    partitions = tuple(replace(one, owner=owners.get(str(one.id))) for one in found)
    return FabricSnapshot(version=version, partitions=partitions, problem=wrong_version(paths, version))
