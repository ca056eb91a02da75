# SPDX-License-Identifier: Apache-2.0
"""Every host action there is, by its name on the wire."""

from __future__ import annotations

from typing import Final

from orchestrator.core.actions import (
    fabric,
    gpu_cards,
    host_actions,
    nics,
    settle_ledger,
    vgpu_settings,
    volumes,
)
from orchestrator.core.actions.host_actions import HostAction, MakesDevice, RemovesDevice
from orchestrator.core.actions.vgpu_settings import RestoreGpuSetting, SetGpuSetting

_HOMES: Final = (
    host_actions, fabric, gpu_cards, nics, settle_ledger, vgpu_settings, volumes,
)  # fmt: skip
_KINDS: Final = (HostAction, MakesDevice, RemovesDevice, SetGpuSetting, RestoreGpuSetting)

ACTIONS: Final[dict[str, type[HostAction]]] = {
    name: found
    for home in _HOMES
    for name, found in vars(home).items()
    if isinstance(found, type) and issubclass(found, HostAction) and found not in _KINDS
}
