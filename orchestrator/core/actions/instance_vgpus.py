# SPDX-License-Identifier: Apache-2.0
"""Host actions that make a vGPU in its VM's GPU instance at ``start``, and in no other. What removes it is as of any
other vGPU. The driver chooses the instance while it makes the vGPU, in both frameworks alike: NVIDIA's
open-gpu-kernel-modules, ``kvgpumgrCreateRequestVgpu`` of kernel_vgpu_mgr.c, since 550."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from orchestrator.core.actions.host_actions import CreateMdev, SetVgpuType


@dataclass(frozen=True, kw_only=True)
class SetInstanceType(SetVgpuType):
    """On a virtual function of NVIDIA's vendor-specific VFIO."""

    since = 3
    gpu: str
    start: int

    @property
    def bare(self) -> SetVgpuType:
        """Without where it comes to lie."""
        return SetVgpuType(vm=self.vm, vf=self.vf, type_name=self.type_name)

    def beside(self, function: str) -> SetVgpuType:
        """Another one like it, on another function: always the same there."""
        return SetVgpuType(vm=self.vm, vf=function, type_name=self.type_name)


@dataclass(frozen=True, kw_only=True)
class CreateInstanceMdev(CreateMdev):
    """The same as a mediated device of a virtual function."""

    since = 9
    gpu: str
    start: int

    @property
    def bare(self) -> CreateMdev:
        """Without where it comes to lie."""
        return CreateMdev(vm=self.vm, uuid=self.uuid, parent=self.parent, type_name=self.type_name)

    def beside(self, function: str) -> CreateMdev:
        """Another one like it, on another function: always the same there."""
        name = str(uuid.uuid5(uuid.UUID(self.uuid), function))
        return CreateMdev(vm=self.vm, uuid=name, parent=function, type_name=self.type_name)


InstanceVgpu = SetInstanceType | CreateInstanceMdev
INSTANCE_VGPUS = (SetInstanceType, CreateInstanceMdev)
