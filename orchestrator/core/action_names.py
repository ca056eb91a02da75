# SPDX-License-Identifier: Apache-2.0
"""Every host action there is, by its name on the wire."""

from __future__ import annotations

from orchestrator.core.fabric_actions import ActivateFabricPartition, DeactivateFabricPartition
from orchestrator.core.host_actions import (
    AdoptDomain,
    BindVfio,
    ClearVgpuType,
    CreateGpuInstance,
    CreateMdev,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    DestroyGpuInstance,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    EnsureBridgedNetwork,
    EnsureNetwork,
    HostAction,
    ManageGpus,
    ReleaseDomain,
    RemoveMdev,
    RemoveNetwork,
    RestoreDriver,
    SetInstanceType,
    SetMigMode,
    SetVgpuType,
    StartDomain,
    StopDomain,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.placed_vgpus import CreatePlacedMdev, SetPlacedType
from orchestrator.core.settle_ledger import SettleLedger
from orchestrator.core.vgpu_settings import (
    ClearVgpuParameters,
    RestoreMixedSizes,
    RestoreVgpuScheduler,
    SetMixedSizes,
    SetVgpuParameters,
    SetVgpuScheduler,
)
from orchestrator.core.volume_actions import (
    AttachVolume,
    CreateDataVolume,
    DeleteDataVolume,
    DetachVolume,
)

ACTIONS: dict[str, type[HostAction]] = {
    cls.__name__: cls
    for cls in (
        CreateVolume, DeleteVolume, WriteSeed, DeleteSeed, EnableVirtualFunctions, DisableVirtualFunctions,
        SetMigMode, CreateGpuInstance, DestroyGpuInstance, BindVfio, RestoreDriver,
        ActivateFabricPartition, DeactivateFabricPartition,
        SetVgpuScheduler, RestoreVgpuScheduler, SetVgpuParameters, ClearVgpuParameters,
        SetMixedSizes, RestoreMixedSizes, CreatePlacedMdev, SetPlacedType,
        CreateMdev, RemoveMdev, SetVgpuType, SetInstanceType, ClearVgpuType, EnsureNetwork, EnsureBridgedNetwork,
        DefineDomain, UndefineDomain, StartDomain, StopDomain, AdoptDomain, ReleaseDomain,
        CreateDataVolume, DeleteDataVolume, AttachVolume, DetachVolume,
        RemoveNetwork, DeleteImage, ManageGpus, SettleLedger,
    )
}  # fmt: skip
