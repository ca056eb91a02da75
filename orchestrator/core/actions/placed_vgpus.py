# SPDX-License-Identifier: Apache-2.0
"""Host actions that make a vGPU at a chosen place of a GPU with mixed sizes. What removes it is as of any other."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.actions.host_actions import CreateMdev, SetVgpuType


@dataclass(frozen=True, kw_only=True)
class CreatePlacedMdev(CreateMdev):
    """It comes to lie there and nowhere else: what the driver does not put there is taken back."""

    since = 7
    placement_id: int


@dataclass(frozen=True, kw_only=True)
class SetPlacedType(SetVgpuType):
    """The same of a virtual function."""

    since = 7
    placement_id: int
