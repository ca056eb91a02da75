# SPDX-License-Identifier: Apache-2.0
"""Everything we ever change on a host, as values. The agent performs them; tests and --dry-run print them.

Each action is idempotent: "already there and ours" and "already gone" are success,
"there and not ours" is an error. ``inverse`` gives the action that takes it back, None where nothing has to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ImageFormat = Literal["qcow2", "raw"]

BootPolicy = Literal["local", "ask-controller"]
"""After a reboot of its host a running VM is started again by the agent alone, or only when a controller says so."""


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


@dataclass(frozen=True, kw_only=True)
class CreateVolume:
    """An overlay disk on a base image that is already on the host."""

    vm: str
    volume: str
    base_sha256: str
    base_format: ImageFormat
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class DeleteVolume:
    vm: str
    volume: str


@dataclass(frozen=True, kw_only=True)
class WriteSeed:
    """The NoCloud seed (an ISO 9660 image labelled cidata), whole."""

    vm: str
    seed: str
    iso_base64: str


@dataclass(frozen=True, kw_only=True)
class DeleteSeed:
    vm: str
    seed: str


@dataclass(frozen=True, kw_only=True)
class EnableVirtualFunctions:
    """Switch on a GPU's virtual functions through NVIDIA's sriov-manage; they stay on. Idempotent."""

    gpu: str


@dataclass(frozen=True, kw_only=True)
class DisableVirtualFunctions:
    """Switch a GPU's virtual functions off again (host remove). Refused while any of them is in use."""

    gpu: str


@dataclass(frozen=True, kw_only=True)
class CreateMdev:
    vm: str
    uuid: str
    parent: str
    type_name: str


@dataclass(frozen=True, kw_only=True)
class RemoveMdev:
    vm: str
    uuid: str


@dataclass(frozen=True, kw_only=True)
class SetVgpuType:
    """Vendor-specific VFIO: give a free virtual function a vGPU type."""

    vm: str
    vf: str
    type_name: str


@dataclass(frozen=True, kw_only=True)
class ClearVgpuType:
    vm: str
    vf: str


@dataclass(frozen=True, kw_only=True)
class EnsureNetwork:
    """Define, start and autostart a libvirt NAT network; an existing one of that name is left as it is."""

    name: str
    xml: str


@dataclass(frozen=True, kw_only=True)
class DefineDomain:
    vm: str
    xml: str


@dataclass(frozen=True, kw_only=True)
class UndefineDomain:
    vm: str


@dataclass(frozen=True, kw_only=True)
class StartDomain:
    vm: str
    boot_policy: BootPolicy = "local"


@dataclass(frozen=True, kw_only=True)
class StopDomain:
    """Ask the guest to shut down, and after ``grace_seconds`` power it off (0: at once)."""

    vm: str
    grace_seconds: int


@dataclass(frozen=True, kw_only=True)
class AdoptDomain:
    """Write down that a domain and its vGPU, made by somebody else, are ours now. Neither is changed.

    Refused unless the domain takes exactly this vGPU and the vGPU is there as described."""

    vm: str
    """The domain's UUID."""
    parent: str
    """PCI address of the function that the vGPU is on."""
    type_name: str
    mdev_uuid: str | None
    """None: vendor-specific VFIO; the function itself is what the domain takes."""
    running: bool
    """Whether it shall run again after a reboot of the host."""
    boot_policy: BootPolicy = "local"


@dataclass(frozen=True, kw_only=True)
class ReleaseDomain:
    """Forget that an adopted domain and its vGPU are ours. Neither is changed."""

    vm: str
    parent: str
    mdev_uuid: str | None


@dataclass(frozen=True, kw_only=True)
class RemoveNetwork:
    """Remove a network that EnsureNetwork made here; one that was there before is left alone."""

    name: str


@dataclass(frozen=True, kw_only=True)
class DeleteImage:
    """Remove a base image. Refused while a volume on this host has it as its base."""

    sha256: str
    image_format: ImageFormat


@dataclass(frozen=True, kw_only=True)
class ManageGpus:
    """Say which GPUs are ours (the whole list). The agent refuses device actions on any other."""

    gpus: tuple[str, ...]


HostAction = (
    CreateVolume | DeleteVolume | WriteSeed | DeleteSeed | EnableVirtualFunctions | DisableVirtualFunctions |
    CreateMdev | RemoveMdev | SetVgpuType | ClearVgpuType | EnsureNetwork |
    DefineDomain | UndefineDomain | StartDomain | StopDomain | AdoptDomain | ReleaseDomain |
    RemoveNetwork | DeleteImage | ManageGpus
)  # fmt: skip

ACTIONS: dict[str, type[HostAction]] = {
    cls.__name__: cls
    for cls in (
        CreateVolume, DeleteVolume, WriteSeed, DeleteSeed, EnableVirtualFunctions, DisableVirtualFunctions,
        CreateMdev, RemoveMdev, SetVgpuType, ClearVgpuType, EnsureNetwork,
        DefineDomain, UndefineDomain, StartDomain, StopDomain, AdoptDomain, ReleaseDomain,
        RemoveNetwork, DeleteImage, ManageGpus,
    )
}  # fmt: skip
"""Name on the wire → class."""


def inverse(action: HostAction) -> HostAction | None:
    """The action that takes ``action`` back; None where nothing has to be taken back."""
    if isinstance(action, CreateVolume):
        return DeleteVolume(vm=action.vm, volume=action.volume)
    if isinstance(action, WriteSeed):
        return DeleteSeed(vm=action.vm, seed=action.seed)
    if isinstance(action, CreateMdev):
        return RemoveMdev(vm=action.vm, uuid=action.uuid)
    if isinstance(action, SetVgpuType):
        return ClearVgpuType(vm=action.vm, vf=action.vf)
    if isinstance(action, DefineDomain):
        return UndefineDomain(vm=action.vm)
    if isinstance(action, StartDomain):
        return StopDomain(vm=action.vm, grace_seconds=0)
    if isinstance(action, AdoptDomain):
        return ReleaseDomain(vm=action.vm, parent=action.parent, mdev_uuid=action.mdev_uuid)
    return None


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """What performing an action did. A failure is raised as an error of core/errors.py instead."""

    changed: bool
    """False: it was already so."""
    message: str = ""
