# SPDX-License-Identifier: Apache-2.0
"""One device of a VM, as it was drawn: what it is, on which GPU, and what its host calls it; what such devices are made
on, as the host is observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from orchestrator.core.gpu.fabric import FabricPlace
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters

DeviceKind = Literal["mdev", "vendor_vfio", "mig_backed", "passthrough"]
"""How it reaches the VM; each is a file in core/attachments and one in agent/attachments."""

Framework = Literal["mdev", "vendor_vfio", "passthrough", "none"]
"""How the driver offers vGPUs on this GPU right now; probed in sysfs, never taken from a version table.
``passthrough``: vfio-pci has the whole GPU. ``none``: no vGPU support seen (yet): virtual functions off, or a GPU
whose driver makes none."""
MAKES_VGPUS: Final[frozenset[Framework]] = frozenset({"mdev", "vendor_vfio"})


@dataclass(frozen=True)
class InstancePlace:
    """A GPU instance: NVIDIA's name of its profile, and the memory slot at which it begins."""

    profile: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Device:
    """Drawn and stored before the first effect; exists on its host while the VM runs."""

    kind: DeviceKind
    gpu: str
    """PCI address of the physical GPU."""
    parent: str
    """PCI address it is made on: the GPU or one of its virtual functions."""
    type_name: str
    """Of a whole GPU how NVIDIA's vGPU types of its board begin: ``NVIDIA L40S``."""
    name: str
    """What the domain's ``<hostdev>`` calls it: a UUID of its own, or the PCI address of ``parent``."""

    gi_profile: str | None = None
    """The GPU instance that is made for it: its profile's name; None: it has none."""
    gi_start: int | None = None
    """Where that one begins: a memory slot of the GPU."""
    leaves_mig: bool = False
    """The GPU was in MIG mode when it was drawn, and has to leave it first."""
    scheduler: Scheduler | None = None
    """How its GPU divides its time; None: as the driver does by itself."""
    parameters: VgpuParameters | None = None
    """Of the vGPU plugin; None: the driver's own."""
    placement_id: int | None = None
    """Where it lies on a GPU with mixed sizes, in GiB of profile size; None: all vGPUs there are of one size."""
    fabric: FabricPlace | None = None
    """The fabric partition that is complete with it: of a VM's whole GPUs on an NVSwitch the last one has it."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Device:
        """What ``dataclasses.asdict`` made of one."""
        scheduler, parameters, fabric = (fields.get(name) for name in ("scheduler", "parameters", "fabric"))
        made = {
            "scheduler": None if scheduler is None else Scheduler(**scheduler),
            "parameters": None if parameters is None else VgpuParameters(**parameters),
            "fabric": None if fabric is None else FabricPlace.from_fields(fabric),
        }
        return cls(**{**fields, **made})

    def set_like(self, other: Device) -> Device:
        """The same with what was asked for another one, in whose place it comes."""
        return replace(self, scheduler=other.scheduler, parameters=other.parameters, placement_id=other.placement_id)

    def inside(self, place: InstancePlace | None) -> Device:
        """The same in that GPU instance."""
        if place is None:
            return self
        return replace(self, gi_profile=place.profile, gi_start=place.start)

    @property
    def instance(self) -> InstancePlace | None:
        if self.gi_profile is None or self.gi_start is None:
            return None
        return InstancePlace(self.gi_profile, self.gi_start)

    @property
    def function(self) -> str | None:
        """The virtual function that is the device's alone; None when it shares the GPU's own function."""
        return self.parent if self.parent != self.gpu else None

    @property
    def asks_of_gpu(self) -> Scheduler | None:
        """What all vGPUs of a GPU have to ask for alike, since the driver has one for the GPU; None is a wish, too."""
        return self.scheduler

    @property
    def is_whole_gpu(self) -> bool:
        """Whether the VM has all of the GPU, with its own driver on it."""
        return self.kind == "passthrough"


@dataclass(frozen=True, kw_only=True)
class ObservedDevice:
    """A device that exists on a host, whoever made it."""

    device: Device
    owner: str | None
    """VM id from the agent's ledger; None: not ours."""
    in_use: bool
    """A process holds it, or nobody can tell; a running domain may hold it either way."""


@dataclass(frozen=True, kw_only=True)
class Mdev:
    """A mediated device that exists (/sys/bus/mdev/devices/<uuid>)."""

    uuid: str
    type_name: str
    owner: str | None
    """VM id from the agent's ledger; None: not made by us."""
    placement_id: int | None = None
    """Where it lies on its GPU, read back from the driver; None: it does not say, or an old agent does not tell."""


@dataclass(frozen=True, kw_only=True)
class VgpuParent:
    """What devices are made on: the GPU's own function (mdev before SR-IOV, passthrough) or one virtual function."""

    address: str
    is_vf: bool
    current_type: str | None
    """Vendor VFIO: the type set on this VF; passthrough: the GPU's model. Always None on the mdev framework."""
    creatable: tuple[str, ...]
    """Type names that the driver would accept here now."""
    mdevs: tuple[Mdev, ...]
    owner: str | None
    """VM id from the agent's ledger that a set ``current_type`` belongs to; None: not made by us."""
    in_use: bool | None
    """Whether a process holds the VFIO device open; None: could not tell (counts as in use)."""
    gpu_instance: int | None = None
    """Id of the GPU instance that its vGPU lies in; None: time-sliced, no vGPU, or the driver does not tell."""
    placement_id: int | None = None
    """Where its vGPU lies, as with :class:`Mdev`."""

    @classmethod
    def of_whole_gpu(cls, address: str, model: str, owner: str | None, in_use: bool | None) -> VgpuParent:
        """The GPU's own function while vfio-pci has it. ``model``: ``unknown`` where nobody remembers it."""
        return cls(
            address=address, is_vf=False, current_type=model, creatable=(), mdevs=(), owner=owner, in_use=in_use
        )  # fmt: skip
