# SPDX-License-Identifier: Apache-2.0
"""What the agent has to know of every attachment kind; one file each implements it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from orchestrator.agent.nvml.reading import NvmlGpu
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import open_files
from orchestrator.agent.sysfs.pci import PciGpu
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.gpu.device import Device, DeviceKind, VgpuParent
from orchestrator.core.hosts.snapshot import HostVgpuType

Handlers = Mapping[type[HostAction], Callable[[Any], ActionResult]]


@dataclass(frozen=True)
class Observation:
    """What all GPUs of one observation share."""

    paths: Paths
    type_names: Mapping[int, str]
    """As far as the driver library knows them."""

    @cached_property
    def opened(self) -> frozenset[str] | None:
        """VFIO devices that processes hold open; None: could not tell. Every process is looked at, and only where there
        is a device that one could have opened."""
        return open_files.open_vfio_devices(self.paths)


class ObservedKind:
    """One observation of all devices of the kind. This one is of a kind without files: nothing is offered."""

    def offered_on(self, _gpu: PciGpu) -> bool:
        """Whether the driver offers such devices on the GPU now."""
        return False

    def parents(self, _gpu: PciGpu, _problems: list[str]) -> tuple[VgpuParent, ...]:
        """Functions of the GPU with what is on them; what cannot be read is added to ``problems``."""
        return ()

    def types(self, _gpu: PciGpu) -> Iterator[HostVgpuType]:
        """Types as sysfs alone describes them; a kind whose sysfs does not gives none."""
        return iter(())

    def remembered(self, _gpu: PciGpu) -> NvmlGpu | None:
        """What the driver said of a GPU before the kind took it from the driver; None: the driver is to be asked."""
        return None


class Kind(Protocol):
    """Everything the agent does with devices of one kind."""

    @property
    def handlers(self) -> Handlers:
        """Its own host actions. Those that make a device also make it again after the host's reboot."""

    def adopt(self, vm: str, device: Device) -> None:
        """Write down that a device which somebody else made is this VM's now.

        :raises Conflict: ``vgpu.differs``, ``host.owned_by_other``; :raises Denied: ``gpu.not_managed``
        """

    def release(self, vm: str, device: Device) -> None:
        """Forget the owner of a device that is left as it is."""

    def forget_gone(self, vm: str) -> None:
        """Forget that this VM owns what is not there: an agent that died between a removal and its note left that."""

    def owner_of(self, name: str) -> str | None:
        """The VM whose device of the kind has this name in a ``<hostdev>``; None: the ledger knows none."""

    def parameters_file(self, name: str) -> Path | None:
        """Where the parameters of the vGPU of this name are; None: the kind has none."""

    def check_may_make(self, name: str) -> None:
        """That nothing speaks against a device of this name which nobody has yet.

        :raises Denied: ``gpu.not_managed``; :raises Conflict: ``vgpu.foreign``
        """

    def names_on(self, functions: Iterable[str]) -> Iterator[str]:
        """Devices that exist on these PCI functions, or may exist since the function cannot be read."""

    def observe(self, shared: Observation) -> ObservedKind:
        """Begin one observation."""


Kinds = Mapping[DeviceKind, Kind]
"""The kind whose files a GPU shows is its framework; where it shows several, the first here."""
