# SPDX-License-Identifier: Apache-2.0
"""A host's kernel and NVIDIA driver: what they hold, what they lose at a reboot, and which errno they answer with.

The rules are those of linux drivers/vfio/mdev and of NVIDIA's vendor-specific VFIO: a UUID is unique over the host,
all vGPUs of a GPU have one size unless it mixes them, a typed function refuses every further write but 0 with EPERM,
an untyped one refuses 0 with EPERM.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from orchestrator.core.gpu.vgpu_parameters import SchedulerState
from orchestrator.core.hosts.snapshot import HostVgpuType
from orchestrator.sim.hardware import GpuKind

VFIO = "vfio-pci"
BEST_EFFORT = SchedulerState(policy="best_effort", time_slice_us=None)
"""Of every GPU that its driver takes anew."""


@dataclass(slots=True)
class SimulatedGpu:
    """One card. ``functions`` counts the virtual functions that are enabled."""

    address: str
    kind: GpuKind
    card: str = ""
    """Where it was first, which its UUID keeps; empty: where it is."""
    functions: int = 0
    mig: bool = False
    instances: dict[int, tuple[str, int]] = field(default_factory=dict)
    """GPU instances: id → (profile, first memory slot)."""
    driver: str = "nvidia"
    scheduler: SchedulerState = BEST_EFFORT
    mixes: bool = False
    """Takes vGPUs of several sizes."""
    power_limit_watts: int = 0  # that it was told to keep to; 0: its own
    module_id: int = 0
    """On its baseboard; 0: it is on none."""

    @property
    def root_port(self) -> str:
        """Above it, and above whatever is under one switch with it."""
        return f"0000:00:{int(self.address[5:7], 16) % 32:02x}.0"

    def parents(self) -> list[str]:
        """PCI functions that vGPUs can be made on now."""
        if self.driver != "nvidia":
            return []
        if not self.kind.total_vfs:
            return [self.address]
        return [self.function(number) for number in range(self.functions)]

    def function(self, number: int) -> str:
        return f"{self.address[:-4]}{1 + number // 8:02x}.{number % 8}"

    def has(self, address: str) -> bool:
        """Whether ``address`` is the card or one of its possible functions; the bus belongs to it alone."""
        return address[:-4] == self.address[:-4]


@dataclass(slots=True)
class Fabric:
    """NVSwitches with their fabric manager: partitions that overlap exclude each other."""

    partitions: dict[int, tuple[int, ...]]
    """Id → module ids."""
    active: set[int] = field(default_factory=set)
    up: bool = True

    def activate(self, partition: int) -> bool:
        """False: one that overlaps it is active (FM_ST_IN_USE)."""
        taken = {module for active in self.active for module in self.partitions[active]}
        if not taken.isdisjoint(self.partitions[partition]):
            return False
        self.active.add(partition)
        return True


@dataclass(slots=True)
class SimulatedNic:
    """A network card. How many functions it has is the host's own configuration: a boot leaves that."""

    address: str
    functions: int
    numa_node: int | None
    bridges: tuple[str, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{self.address[:-4]}{1 + number // 8:02x}.{number % 8}" for number in range(self.functions))


@dataclass(slots=True)
class Kernel:
    """Everything here but the cards themselves is gone after a reboot."""

    gpus: list[SimulatedGpu]
    mdevs: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UUID → (parent, type)."""
    typed: dict[str, str] = field(default_factory=dict)
    """Virtual function → type."""
    inside: dict[str, int] = field(default_factory=dict)
    """mdev UUID or virtual function → id of the GPU instance that its vGPU lies in."""
    parameters: dict[str, str] = field(default_factory=dict)
    """mdev UUID or virtual function → what its ``vgpu_params`` holds."""
    places: dict[str, range] = field(default_factory=dict)
    """mdev UUID or virtual function → where its vGPU lies, on cards that take several sizes."""
    opened: set[str] = field(default_factory=set)
    """mdev UUIDs and functions that a QEMU holds open."""
    fabric: Fabric | None = None
    nics: list[SimulatedNic] = field(default_factory=list)
    nic_vfio: dict[str, str] = field(default_factory=dict)
    """Functions of network cards that vfio-pci has → hardware address."""
    next_errno: int = 0
    """Answered to the next write instead of doing it; 0: none."""
    stuck_resets: set[str] = field(default_factory=set)
    """GPUs whose reset fails."""
    harmed: list[str] = field(default_factory=list)
    """Devices that were taken away while they were open: must stay empty (I6)."""

    def gpu_of(self, address: str) -> SimulatedGpu | None:
        return next((gpu for gpu in self.gpus if gpu.has(address)), None)

    def devices(self) -> set[str]:
        """What a domain can name as its hostdev: UUIDs, typed functions, and what vfio-pci has."""
        return {*self.mdevs, *self.typed, *self.nic_vfio, *(gpu.address for gpu in self.gpus if gpu.driver == VFIO)}

    def vgpu_on(self, function: str) -> str | None:
        """mdev UUID or virtual function: the name of the vGPU that is on a virtual function."""
        mdevs = (uuid for uuid, (parent, _) in self.mdevs.items() if parent == function)
        return function if function in self.typed else next(mdevs, None)

    def types_on(self, gpu: SimulatedGpu) -> Iterator[str]:
        yield from (name for parent, name in self.mdevs.values() if gpu.has(parent))
        yield from (name for function, name in self.typed.items() if gpu.has(function))

    def creatable(self, gpu: SimulatedGpu) -> tuple[HostVgpuType, ...]:
        """What the driver would take on this card now."""
        if gpu.mig:
            return tuple(
                vgpu_type for vgpu_type in gpu.kind.types if self.chosen_instance(gpu, vgpu_type.name) is not None
            )
        if gpu.mixes:
            return tuple(vgpu_type for vgpu_type in gpu.kind.types if self._free_place(gpu, vgpu_type.name) is not None)
        existing = list(self.types_on(gpu))
        sliced = [vgpu_type for vgpu_type in gpu.kind.types if gpu.kind.profile_of(vgpu_type.name) is None]
        sizes = {vgpu_type.framebuffer_mib for vgpu_type in sliced if vgpu_type.name in existing}
        return tuple(
            vgpu_type
            for vgpu_type in sliced
            if sizes <= {vgpu_type.framebuffer_mib} and len(existing) < vgpu_type.max_instances
        )

    def _free_place(self, gpu: SimulatedGpu, type_name: str) -> range | None:
        """The first one, which the driver would choose."""
        free = (place for place in gpu.kind.places_of(type_name) if self._is_free(gpu, place))
        return min(free, default=None, key=lambda place: place.start)

    def _is_free(self, gpu: SimulatedGpu, place: range, but: str = "") -> bool:
        others = (taken for name, taken in self.places.items() if name != but and gpu.has(self.function_of(name)))
        return all(taken.stop <= place.start or place.stop <= taken.start for taken in others)

    def function_of(self, device: str) -> str:
        return self.mdevs[device][0] if device in self.mdevs else device

    def _type_of(self, device: str) -> str:
        return self.mdevs[device][1] if device in self.mdevs else self.typed[device]

    def mixed_sizes_of(self, gpu: SimulatedGpu) -> bool | None:
        """``nvidia-smi vgpu -q``; None where it answers that there is no such mode."""
        return gpu.mixes if gpu.kind.total_vfs and gpu.driver == "nvidia" and not gpu.mig else None

    def set_mixed_sizes(self, gpu: SimulatedGpu, on: bool) -> None:
        """``nvidia-smi vgpu -shm``.

        :raises OSError: EOPNOTSUPP, EBUSY while a vGPU is on it, or the errno that was planted
        """
        self._planted()
        if self.mixed_sizes_of(gpu) is None:
            raise OSError(errno.EOPNOTSUPP, "no such mode")
        if any(True for _ in self.types_on(gpu)):
            raise OSError(errno.EBUSY, "in use by another client")
        gpu.mixes = on

    def write_place(self, device: str, start: int) -> None:
        """``echo START > …/nvidia/placement_id``.

        :raises OSError: EOPNOTSUPP, EBUSY while it is open, EINVAL where it may not lie, or the errno that was planted
        """
        self._planted()
        gpu = self.gpu_of(self.function_of(device))
        if gpu is None or device not in self.places:
            raise OSError(errno.EOPNOTSUPP, "no place to choose")
        if device in self.opened:
            raise OSError(errno.EBUSY, "open")
        place = next(
            (candidate for candidate in gpu.kind.places_of(self._type_of(device)) if candidate.start == start), None
        )
        if place is None or not self._is_free(gpu, place, but=device):
            raise OSError(errno.EINVAL, "not there")
        self.places[device] = place

    def chosen_instance(self, gpu: SimulatedGpu, type_name: str) -> int | None:
        """The one that the driver would choose: nobody is asked. vGPUs of one size share one, up to their number."""
        profile, wanted = gpu.kind.profile_of(type_name), gpu.kind.type_named(type_name)
        if profile is None or wanted is None:
            return None
        sizes: dict[int, list[int]] = {instance: [] for instance, (name, _) in gpu.instances.items() if name == profile}
        for device, number in self.inside.items():
            neighbour = gpu.kind.type_named(self._type_of(device)) if gpu.has(self.function_of(device)) else None
            if neighbour is not None and number in sizes:
                sizes[number].append(neighbour.framebuffer_mib)
        alike = (instance for instance, sizes_inside in sizes.items() if set(sizes_inside) <= {wanted.framebuffer_mib})
        most = gpu.kind.per_instance(type_name)
        return min((instance for instance in alike if len(sizes[instance]) < most), default=None)

    def set_mig(self, gpu: SimulatedGpu, *, on: bool) -> None:
        """``nvidia-smi -mig``.

        :raises OSError: EOPNOTSUPP, EBUSY while functions are on or anything is on it, or the errno that was planted
        """
        self._planted()
        if not gpu.kind.profiles:
            raise OSError(errno.EOPNOTSUPP, "no MIG")
        if gpu.functions or gpu.instances or any(True for _ in self.types_on(gpu)):
            raise OSError(errno.EBUSY, "in use by another client")
        gpu.mig = on

    def create_instance(self, gpu: SimulatedGpu, profile: str, start: int) -> None:
        """``nvidia-smi mig -cgi PROFILE:START -C``.

        :raises OSError: EOPNOTSUPP out of MIG mode, EINVAL, ENOSPC where others lie, or the errno that was planted
        """
        self._planted()
        row = next((known for known in gpu.kind.profiles if known.name == profile and start in known.starts), None)
        if not gpu.mig:
            raise OSError(errno.EOPNOTSUPP, "MIG is off")
        if row is None:
            raise OSError(errno.EINVAL, "no such profile or place")
        sizes = {known.name: known.size for known in gpu.kind.profiles}
        for name, other in gpu.instances.values():
            if start < other + sizes[name] and other < start + row.size:
                raise OSError(errno.ENOSPC, "insufficient resources")
        gpu.instances[max(gpu.instances, default=0) + 1] = (profile, start)

    def destroy_instance(self, gpu: SimulatedGpu, number: int) -> None:
        """``nvidia-smi mig -dci -dgi``. :raises OSError: EBUSY while a vGPU is in it, or the errno that was planted"""
        self._planted()
        if any(gpu.has(self.function_of(device)) and inside == number for device, inside in self.inside.items()):
            raise OSError(errno.EBUSY, "in use by another client")
        del gpu.instances[number]

    def scheduler_of(self, gpu: SimulatedGpu) -> SchedulerState | None:
        """``nvidia-smi vgpu -ss``; None where it answers that there is none."""
        return None if gpu.mig or gpu.driver != "nvidia" else gpu.scheduler

    def set_scheduler(self, gpu: SimulatedGpu, wanted: SchedulerState) -> None:
        """``nvidia-smi vgpu set-scheduler-state``.

        :raises OSError: EOPNOTSUPP while a vGPU is on it or it is in MIG mode, or the errno that was planted
        """
        self._planted()
        if self.scheduler_of(gpu) is None or any(True for _ in self.types_on(gpu)):
            raise OSError(errno.EOPNOTSUPP, "not now")
        shares = wanted.policy != "best_effort"
        gpu.scheduler = replace(wanted, time_slice_us=wanted.time_slice_us or 2000) if shares else wanted

    def write_parameters(self, device: str, text: str) -> None:
        """``echo TEXT > …/nvidia/vgpu_params``. :raises OSError: ENXIO without a vGPU, or the errno that was planted"""
        self._planted()
        if device not in self.mdevs and device not in self.typed:
            raise OSError(errno.ENXIO, "no vGPU")
        self.parameters[device] = text.strip()

    def create_mdev(self, parent: str, type_name: str, uuid: str) -> None:
        """``echo UUID > …/create``.

        :raises OSError: EEXIST, ENODEV, ENOENT, ENOSPC, or the errno that was planted
        """
        self._planted()
        gpu = self.gpu_of(parent)
        if uuid in self.mdevs:
            raise OSError(errno.EEXIST, "exists")
        if gpu is None or parent not in gpu.parents() or not (gpu.kind.mediated or parent == gpu.address):
            raise OSError(errno.ENODEV, "no such parent")
        if gpu.kind.type_named(type_name) is None:
            raise OSError(errno.ENOENT, "no such type")
        used = parent != gpu.address and self.vgpu_on(parent) is not None
        if used or all(vgpu_type.name != type_name for vgpu_type in self.creatable(gpu)):
            raise OSError(errno.ENOSPC, "full, or another size")
        self._lay(gpu, uuid, type_name)
        self.mdevs[uuid] = (parent, type_name)

    def remove_mdev(self, uuid: str) -> None:
        """:raises OSError: ENOENT, or the errno that was planted"""
        self._planted()
        if uuid not in self.mdevs:
            raise OSError(errno.ENOENT, "gone")
        self._not_open(uuid)
        del self.mdevs[uuid]
        self._forget(uuid)

    def write_type(self, function: str, type_id: int) -> None:
        """``echo ID > <function>/nvidia/current_vgpu_type``.

        :raises OSError: ENOENT, EPERM, EINVAL, EIO, or the errno that was planted
        """
        self._planted()
        gpu = self.gpu_of(function)
        if gpu is None or function not in gpu.parents() or gpu.kind.mediated:
            raise OSError(errno.ENOENT, "no such function")
        if bool(type_id) == (function in self.typed):
            raise OSError(errno.EPERM, "typed already, or not typed")
        if not type_id:
            self._not_open(function)
            del self.typed[function]
            self._forget(function)
            return
        vgpu_type = gpu.kind.type_of_id(type_id)
        if vgpu_type is None:
            raise OSError(errno.EINVAL, "no such type")
        if vgpu_type not in self.creatable(gpu):
            raise OSError(errno.EIO, "full, or another size")
        self._lay(gpu, function, vgpu_type.name)
        self.typed[function] = vgpu_type.name

    def _lay(self, gpu: SimulatedGpu, device: str, type_name: str) -> None:
        """Where the driver puts a new vGPU."""
        instance = self.chosen_instance(gpu, type_name) if gpu.mig else None
        if instance is not None:
            self.inside[device] = instance
        place = self._free_place(gpu, type_name) if gpu.mixes else None
        if place is not None:
            self.places[device] = place

    def _forget(self, device: str) -> None:
        self.inside.pop(device, None)
        self.parameters.pop(device, None)
        self.places.pop(device, None)

    def switch_functions(self, gpu: SimulatedGpu, *, on: bool) -> None:
        """sriov-manage: -d clears the types of all functions, and either destroys all GPU instances."""
        gpu.instances.clear()
        gpu.scheduler, gpu.mixes = BEST_EFFORT, False
        if not on:
            for device in [name for name in (*self.typed, *self.mdevs) if gpu.has(self.function_of(name))]:
                self._not_open(device)
                self._forget(device)
                self.typed.pop(device, None)
                self.mdevs.pop(device, None)
        gpu.functions = gpu.kind.total_vfs if on else 0

    def bind(self, gpu: SimulatedGpu, driver: str) -> None:
        """Unbind it and ``echo ADDRESS > /sys/bus/pci/drivers/<driver>/bind``.

        :raises OSError: EBUSY while virtual functions are on (vfio-pci), or the errno that was planted
        """
        self._planted()
        if driver == VFIO and gpu.functions:
            raise OSError(errno.EBUSY, "virtual functions are on")
        self._not_open(gpu.address)
        gpu.driver, gpu.scheduler, gpu.mixes, gpu.power_limit_watts = driver, BEST_EFFORT, False, 0

    def reset(self, gpu: SimulatedGpu) -> None:
        """``echo 1 > …/reset``. :raises OSError: ENOTTY when it fails, as one that does not come back"""
        self._planted()
        self._not_open(gpu.address)
        if gpu.address in self.stuck_resets:
            raise OSError(errno.ENOTTY, "not ready")

    def reboot(self) -> None:
        self.mdevs.clear()
        self.typed.clear()
        self.inside.clear()
        self.parameters.clear()
        self.places.clear()
        self.opened.clear()
        self.nic_vfio.clear()
        self.next_errno = 0
        self.stuck_resets.clear()
        if self.fabric is not None:
            self.fabric.active.clear()
            self.fabric.up = True
        for gpu in self.gpus:
            gpu.functions, gpu.driver, gpu.scheduler = 0, "nvidia", BEST_EFFORT
            gpu.mixes, gpu.power_limit_watts, gpu.mig = False, 0, gpu.mig and gpu.kind.keeps_mig
            gpu.instances.clear()

    def _planted(self) -> None:
        number, self.next_errno = self.next_errno, 0
        if number:
            raise OSError(number, "planted")

    def _not_open(self, device: str) -> None:
        if device in self.opened:
            self.harmed.append(device)
