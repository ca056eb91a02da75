# SPDX-License-Identifier: Apache-2.0
"""Everything we ever change on a host, as values, here and in the files beside this one; core/wire.py has all by name.
The agent performs them; tests and --dry-run print them.

Each is idempotent: "already there and ours" and "already gone" are success, "there and not ours" is an error. Each has
an inverse, the action that takes it back, or says why it needs none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal
from uuid import UUID, uuid5

from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.domain import BootPolicy, DomainDescription
from orchestrator.core.hosts.volume_key import VolumeKey

ImageFormat = Literal["qcow2", "raw"]


@dataclass(frozen=True, kw_only=True)
class FencingToken:
    """Who acts. The agent remembers the highest (epoch, attempt) and refuses older ones."""

    site: str
    """Id of the control plane's database: a host obeys one site only."""
    epoch: int
    """Raised by the host's owner on take-over or restore of a backup."""
    operation: str
    attempt: int
    """Raised each time an operation is picked up again after a crash."""

    def is_stale(self, epoch: int, attempt: int) -> bool:
        """On a host that has seen this epoch, and this attempt of the operation in it."""
        return self.epoch < epoch or (self.epoch == epoch and self.attempt < attempt)


@dataclass(frozen=True, kw_only=True)
class HostAction:
    """One thing done to a host. A subclass overrides exactly one of both."""

    since: ClassVar[int] = 1
    """Version of the protocol in which it got the fields that it has."""
    no_inverse: ClassVar[str] = ""
    """Why nothing takes it back."""

    def inverse(self) -> HostAction | None:
        """The action that takes it back."""
        return None


@dataclass(frozen=True, kw_only=True)
class MakesDevice(HostAction, ABC):
    """Makes a device, or a part of one, that is gone after a reboot: the agent then makes it again."""

    vm: str

    @property
    @abstractmethod
    def function(self) -> str:
        """PCI function that it is made on."""

    @abstractmethod
    def inverse(self) -> HostAction:
        """The action that takes it back."""


@dataclass(frozen=True, kw_only=True)
class RemovesDevice(HostAction):
    """The inverse of one that makes it."""

    no_inverse = "starting the VM makes it again"
    cleans: ClassVar[bool] = False
    """Whether memory of a GPU goes back with it: its result says how that was cleaned."""
    vm: str


@dataclass(frozen=True, kw_only=True)
class CreateVolume(HostAction):
    """An overlay disk on a base image that is already on the host."""

    vm: str
    volume: str
    base_sha256: str
    base_format: ImageFormat
    size_bytes: int
    keys: tuple[VolumeKey, ...] = ()
    """Of one that is encrypted."""

    @property
    def base_file(self) -> str:
        """Name of the image's file in the agent's directory."""
        return f"{self.base_sha256}.{self.base_format}"

    def inverse(self) -> HostAction:
        return DeleteVolume(vm=self.vm, volume=self.volume)


@dataclass(frozen=True, kw_only=True)
class DeleteVolume(HostAction):
    no_inverse = "what was on it is gone"
    vm: str
    volume: str


@dataclass(frozen=True, kw_only=True)
class WriteSeed(HostAction):
    """The NoCloud seed (an ISO 9660 image labelled cidata), whole."""

    vm: str
    seed: str
    iso_base64: str

    def inverse(self) -> HostAction:
        return DeleteSeed(vm=self.vm, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class DeleteSeed(HostAction):
    no_inverse = "it is written anew from what the database holds"
    vm: str
    seed: str


@dataclass(frozen=True, kw_only=True)
class EnableVirtualFunctions(HostAction):
    """Switch on a GPU's virtual functions through NVIDIA's sriov-manage; they stay on. Idempotent."""

    no_inverse = "they stay on for the next VM"
    gpu: str


@dataclass(frozen=True, kw_only=True)
class DisableVirtualFunctions(HostAction):
    """Switch a GPU's virtual functions off again (host remove). Refused while any of them is in use."""

    no_inverse = "making the next vGPU enables them"
    gpu: str


@dataclass(frozen=True, kw_only=True)
class SetMigMode(HostAction):
    """Switch a GPU's MIG mode, with its virtual functions off meanwhile. Refused while anything is on it, whoever made
    that; a mode that stays pending is taken back and is an error."""

    since = 3
    no_inverse = "it stays for the next VM; the GPU gets its own mode back when it is given back"
    gpu: str
    on: bool


@dataclass(frozen=True, kw_only=True)
class CreateGpuInstance(MakesDevice):
    """A GPU instance at that memory slot with one compute instance that takes all of it."""

    since = 3
    gpu: str
    profile: str
    """NVIDIA's name, e.g. ``1g.10gb``."""
    start: int

    @property
    def function(self) -> str:
        return self.gpu

    def inverse(self) -> HostAction:
        return DestroyGpuInstance(vm=self.vm, gpu=self.gpu, start=self.start)


@dataclass(frozen=True, kw_only=True)
class DestroyGpuInstance(RemovesDevice):
    """Its compute instances first. Refused while a vGPU is in it; one that is not the VM's is left alone."""

    since = 3
    cleans = True
    gpu: str
    start: int


@dataclass(frozen=True, kw_only=True)
class VgpuPosition:
    """Where a vGPU comes to lie on its GPU, and nowhere else: what the driver does not put there is taken back."""

    within: Literal["gpu", "instance"]
    """A GPU with mixed sizes, or a GPU instance. In which instance a vGPU lies, the driver chooses while it makes the
    vGPU, in both frameworks alike: NVIDIA's open-gpu-kernel-modules, ``kvgpumgrCreateRequestVgpu`` of
    kernel_vgpu_mgr.c, since 550."""
    start: int
    """The placement id on the GPU; the memory slot at which the instance begins."""


@dataclass(frozen=True, kw_only=True)
class MakeVgpu(MakesDevice):
    """A mediated device with that UUID, or a free virtual function of vendor-specific VFIO that is given the type."""

    since = 10
    parent: str
    """PCI function that it is made on."""
    type_name: str
    uuid: str | None = None
    """Of the mediated device; None: vendor-specific VFIO, where the function itself is the vGPU."""
    at: VgpuPosition | None = None
    """None: wherever the driver puts it."""

    @property
    def function(self) -> str:
        return self.parent

    @property
    def name(self) -> str:
        """What a domain calls it."""
        return self.uuid or self.parent

    def beside(self, function: str) -> MakeVgpu:
        """Another one like it, on another function: always the same there."""
        name = None if self.uuid is None else str(uuid5(UUID(self.uuid), function))
        return replace(self, parent=function, uuid=name, at=None)

    def inverse(self) -> RemoveMdev | ClearVgpuType:
        if self.uuid is None:
            return ClearVgpuType(vm=self.vm, vf=self.parent)
        return RemoveMdev(vm=self.vm, uuid=self.uuid)


@dataclass(frozen=True, kw_only=True)
class RemoveMdev(RemovesDevice):
    cleans = True
    uuid: str


@dataclass(frozen=True, kw_only=True)
class ClearVgpuType(RemovesDevice):
    cleans = True
    vf: str


@dataclass(frozen=True, kw_only=True)
class BindVfio(MakesDevice):
    """Take a whole GPU from its host's driver and give it to vfio-pci, with the functions that belong to it.

    Which drivers they had, and whether virtual functions were on, is written down first. Refused while anything uses
    the GPU, and when its IOMMU group has members that are not its own."""

    since = 3
    gpu: str
    model: str
    """What the host shows as its type while the VM has it."""

    @property
    def function(self) -> str:
        return self.gpu

    def inverse(self) -> HostAction:
        return RestoreDriver(vm=self.vm, gpu=self.gpu)


@dataclass(frozen=True, kw_only=True)
class RestoreDriver(RemovesDevice):
    """Reset a GPU that a VM had and give it back to the driver that it had before, with its virtual functions on if
    they were on. Refused while anything has it open, and as long as the reset fails."""

    since = 3
    cleans = True
    gpu: str


@dataclass(frozen=True, kw_only=True)
class EnsureNetwork(HostAction):
    """Define, start and autostart a libvirt NAT network; an existing one of that name is left as it is."""

    since = 5
    no_inverse = "it stays for the next VM"
    name: str
    subnet: str


@dataclass(frozen=True, kw_only=True)
class EnsureBridgedNetwork(HostAction):
    """Define, start and autostart a libvirt network on a bridge that the host has by itself. The bridge is left as it
    is; so is a network of that name on the same bridge. Refused where the bridge is not, or is of Open vSwitch."""

    since = 7
    no_inverse = "it stays for the next VM"
    name: str
    bridge: str
    vlan: int | None
    """The bridge meant is that of this VLAN of ``bridge``."""
    dhcp_servers: tuple[str, ...]
    """IPv4 addresses whose answers give VMs theirs; empty: any that reaches them."""


@dataclass(frozen=True, kw_only=True)
class DefineDomain(HostAction):
    since = 5
    vm: str
    domain: DomainDescription

    def inverse(self) -> HostAction:
        return UndefineDomain(vm=self.vm)


@dataclass(frozen=True, kw_only=True)
class UndefineDomain(HostAction):
    no_inverse = "it is defined anew from what the database holds"
    vm: str


@dataclass(frozen=True, kw_only=True)
class StartDomain(HostAction):
    vm: str
    boot_policy: BootPolicy = "local"
    keys: tuple[VolumeKey, ...] = ()
    """Of what it has that is encrypted; its host keeps none of them."""

    def inverse(self) -> HostAction:
        return StopDomain(vm=self.vm, grace_seconds=0)


@dataclass(frozen=True, kw_only=True)
class StopDomain(HostAction):
    """Ask the guest to shut down, and after ``grace_seconds`` power it off (0: at once). The memory of one that is
    suspended goes."""

    no_inverse = "what ran in the guest is gone"
    vm: str
    grace_seconds: int


@dataclass(frozen=True, kw_only=True)
class AdoptDomain(HostAction):
    """Write down that a domain and its devices, made by somebody else, are ours now. Neither is changed.

    Refused unless the domain takes exactly these devices and they are there as described."""

    since = 2
    vm: str
    """The domain's UUID."""
    devices: tuple[Device, ...]
    running: bool
    """Whether it shall run again after a reboot of the host."""
    boot_policy: BootPolicy = "local"

    def inverse(self) -> HostAction:
        return ReleaseDomain(vm=self.vm, devices=self.devices)


@dataclass(frozen=True, kw_only=True)
class ReleaseDomain(HostAction):
    """Forget that an adopted domain and its devices are ours. Neither is changed."""

    since = 2
    no_inverse = "adopting it again is its user's wish"
    vm: str
    devices: tuple[Device, ...]


@dataclass(frozen=True, kw_only=True)
class RemoveNetwork(HostAction):
    """Remove a libvirt network that was made here; one that was there before is left alone, as are bridges."""

    no_inverse = "it is made again for the next VM"
    name: str


@dataclass(frozen=True, kw_only=True)
class DeleteImage(HostAction):
    """Remove a base image. Refused while a volume on this host has it as its base."""

    no_inverse = "it is sent again for the next VM"
    sha256: str
    image_format: ImageFormat


@dataclass(frozen=True, kw_only=True)
class ManageGpus(HostAction):
    """Say which GPUs are ours (the whole list). The agent refuses device actions on any other."""

    no_inverse = "the list before is not the action's to know"
    gpus: tuple[str, ...]


AgentCleaned = Literal["", "absent", "vgpu_destroyed", "instance_destroyed", "bus_reset", "flr"]
"""``absent``: nothing of the VM was left there; "": the agent cannot say."""


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """What performing an action did. A failure is raised as an error of core/errors.py instead."""

    changed: bool
    """False: it was already so."""
    message: str = ""
    unfinished: bool = False
    """It goes on in the background, as long as its operation asks for it again; asked for anything else of the VM, the
    agent ends it."""
    quiesced: str = ""
    """Whether a guest's file systems were frozen when a copy of its disk began, as a snapshot says it."""
    cleaned: AgentCleaned = ""
    """How what it removed of a GPU was cleaned."""
