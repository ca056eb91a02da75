# SPDX-License-Identifier: Apache-2.0
"""A host's kernel and NVIDIA driver: what they hold, what they lose at a reboot, and which errno they answer with.

The rules are those of linux drivers/vfio/mdev and of NVIDIA's vendor-specific VFIO: a UUID is unique over the host,
all vGPUs of a GPU have one size, a typed function refuses every further write but 0 with EPERM, an untyped one
refuses 0 with EPERM.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchestrator.core.snapshot import HostVgpuType
from orchestrator.sim.hardware import GpuKind


@dataclass(slots=True)
class SimulatedGpu:
    """One card. ``functions`` counts the virtual functions that are enabled."""

    address: str
    kind: GpuKind
    functions: int = 0

    def parents(self) -> list[str]:
        """PCI functions that vGPUs can be made on now."""
        if not self.kind.total_vfs:
            return [self.address]
        return [self.function(number) for number in range(self.functions)]

    def function(self, number: int) -> str:
        return f"{self.address[:-4]}{1 + number // 8:02x}.{number % 8}"

    def has(self, address: str) -> bool:
        """Whether ``address`` is the card or one of its possible functions; the bus belongs to it alone."""
        return address[:-4] == self.address[:-4]


@dataclass(slots=True)
class Kernel:
    """Everything here but the cards themselves is gone after a reboot."""

    gpus: list[SimulatedGpu]
    mdevs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UUID → (parent, type)."""
    typed: dict[str, str] = field(default_factory=dict)
    """Virtual function → type."""
    opened: set[str] = field(default_factory=set)
    """mdev UUIDs and functions that a QEMU holds open."""
    next_errno: int = 0
    """Answered to the next write instead of doing it; 0: none."""
    harmed: list[str] = field(default_factory=list)
    """Devices that were taken away while they were open: must stay empty (I6)."""

    def gpu_of(self, address: str) -> SimulatedGpu | None:
        return next((gpu for gpu in self.gpus if gpu.has(address)), None)

    def devices(self) -> set[str]:
        """What a domain can name as its hostdev: UUIDs and typed functions."""
        return {*self.mdevs, *self.typed}

    def types_on(self, gpu: SimulatedGpu) -> Iterator[str]:
        yield from (name for parent, name in self.mdevs.values() if gpu.has(parent))
        yield from (name for function, name in self.typed.items() if gpu.has(function))

    def creatable(self, gpu: SimulatedGpu) -> tuple[HostVgpuType, ...]:
        """What the driver would take on this card now."""
        there = list(self.types_on(gpu))
        if not there:
            return gpu.kind.types
        sizes = {one.framebuffer_mib for one in gpu.kind.types if one.name in there}
        return tuple(one for one in gpu.kind.types if {one.framebuffer_mib} == sizes and len(there) < one.max_instances)

    def create_mdev(self, parent: str, type_name: str, uuid: str) -> None:
        """``echo UUID > …/create``.

        :raises OSError: EEXIST, ENODEV, ENOENT, ENOSPC, or the errno that was planted
        """
        self._planted()
        gpu = self.gpu_of(parent)
        if uuid in self.mdevs:
            raise OSError(errno.EEXIST, "exists")
        if gpu is None or parent not in gpu.parents():
            raise OSError(errno.ENODEV, "no such parent")
        if gpu.kind.type_named(type_name) is None:
            raise OSError(errno.ENOENT, "no such type")
        if all(one.name != type_name for one in self.creatable(gpu)):
            raise OSError(errno.ENOSPC, "full, or another size")
        self.mdevs[uuid] = (parent, type_name)

    def remove_mdev(self, uuid: str) -> None:
        """:raises OSError: ENOENT, or the errno that was planted"""
        self._planted()
        if uuid not in self.mdevs:
            raise OSError(errno.ENOENT, "gone")
        self._not_open(uuid)
        del self.mdevs[uuid]

    def write_type(self, function: str, type_id: int) -> None:
        """``echo ID > <function>/nvidia/current_vgpu_type``.

        :raises OSError: ENOENT, EPERM, EINVAL, EIO, or the errno that was planted
        """
        self._planted()
        gpu = self.gpu_of(function)
        if gpu is None or function not in gpu.parents():
            raise OSError(errno.ENOENT, "no such function")
        if bool(type_id) == (function in self.typed):
            raise OSError(errno.EPERM, "typed already, or not typed")
        if not type_id:
            self._not_open(function)
            del self.typed[function]
            return
        found = gpu.kind.type_of_id(type_id)
        if found is None:
            raise OSError(errno.EINVAL, "no such type")
        if found not in self.creatable(gpu):
            raise OSError(errno.EIO, "full, or another size")
        self.typed[function] = found.name

    def switch_functions(self, gpu: SimulatedGpu, *, on: bool) -> None:
        """sriov-manage: -d clears the types of all functions."""
        if not on:
            for function in [one for one in self.typed if gpu.has(one)]:
                self._not_open(function)
                del self.typed[function]
        gpu.functions = gpu.kind.total_vfs if on else 0

    def reboot(self) -> None:
        self.mdevs.clear()
        self.typed.clear()
        self.opened.clear()
        self.next_errno = 0
        for gpu in self.gpus:
            gpu.functions = 0

    def _planted(self) -> None:
        number, self.next_errno = self.next_errno, 0
        if number:
            raise OSError(number, "planted")

    def _not_open(self, device: str) -> None:
        if device in self.opened:
            self.harmed.append(device)
