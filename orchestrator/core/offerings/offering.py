# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` names: a way to give a VM GPU power, with everything that must be set for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.hosts.domain import DiskLimits, Firmware
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.labels import KEPT_FOR, Labels
from orchestrator.core.units import GIB, MIB, show_size
from orchestrator.core.vms.vm import DEFAULT_DISK_BYTES, DEFAULT_MEMORY_MIB, DEFAULT_VCPUS, disk_bytes, memory_mib

OfferingKind = Literal["time_sliced", "mig_backed", "mig", "passthrough"]
"""``mig``: a GPU-instance profile by its own name; a VM gets the MIG-backed type that takes all of such an instance.
How a device reaches the VM is the host's matter and not part of an offering."""

NumaPolicy = Literal["any", "prefer", "strict"]
"""Whether vCPUs and memory come from the GPU's NUMA node: don't care, if possible, or not at all."""
CpuPolicy = Literal["shared", "pinned"]
HugePageSize = Literal["2M", "1G"]
PAGE_KIB: Final[Mapping[HugePageSize, int]] = {"2M": 2048, "1G": 1024 * 1024}
AntiAffinity = Literal["none", "gpu", "host"]
"""What two VMs of this offering and tenant may not share."""


Origin = Literal["catalogue", "site", "vgpu_type", "mig_profile", "gpu_count"]
"""``catalogue``: it comes with vgpuctl; ``site``: an operator added it; the rest: a name of NVIDIA's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offering:
    """One offering. ``origin`` tells who wrote it down (we, the site), or which name of NVIDIA's it follows from."""

    name: str
    """What ``--profile`` takes: lower-case letters, digits and ``-``; or a name of NVIDIA's."""
    kind: OfferingKind
    """How the GPU is divided for it."""
    version: int = 1
    """Raised when its meaning changes."""
    origin: Origin = "catalogue"
    """Comes with vgpuctl (catalogue), added here (site), or a name of NVIDIA's."""
    description: str = ""
    """For people."""
    vgpu_type: str | None = None
    """vGPU type as NVIDIA calls it; for ``time_sliced`` and ``mig_backed``."""
    vgpu_count: int = 1
    """vGPUs of that type in one VM."""
    mig_profile: str | None = None
    """GPU-instance profile; for ``mig``."""
    gpu_count: int = 0
    """Whole GPUs in one VM; for ``passthrough``."""
    gpu_models: tuple[str, ...] = ()
    """GPU models that will do; empty: any that offers the rest."""
    hosts: Labels = ()
    """Labels that a host must have, all of them, to take a VM of it."""
    scheduler: Scheduler | None = None
    """How the GPU's time is divided among its vGPUs; None: the driver's default."""
    parameters: VgpuParameters = field(default_factory=VgpuParameters)
    """Parameters of the vGPU plugin."""
    vcpus: int | None = None
    """Of a VM that asks for no number; None: by its framebuffer."""
    memory: str | None = None
    """The same of its memory, like 32GiB."""
    disk: str | None = None
    """The same of its disk, like 100GiB."""
    pool: str | None = None
    """Pool that its disk lies in where its request names none; None: as its tenant's policy says."""
    disk_bytes_per_s: int | None = None
    """What each disk of its VMs may read and write in a second, in bytes; None: as much as it can."""
    disk_iops: int | None = None
    """The same in requests."""
    disk_bytes_per_s_max: int | None = None
    """The same in bytes, in bursts of at most 10 s; None: no more than the limit."""
    disk_iops_max: int | None = None
    """The same in requests."""
    mixed_sizes: bool = False
    """The GPU is in heterogeneous mode: vGPUs of several sizes may share it."""
    numa: NumaPolicy = "prefer"
    """Whether vCPUs and memory come from the GPU's NUMA node."""
    cpu: CpuPolicy = "shared"
    """Whether vCPUs have CPUs of their own."""
    hugepages: HugePageSize | None = None
    """Huge pages that the VM's memory is made of, all of it; None: ordinary ones."""
    firmware: Firmware = "bios"
    """What its guests boot by; ``uefi``: without Secure Boot."""
    tpm: bool = False
    """Whether its VMs have a TPM 2.0 each, unless one is made without."""
    nic: NicKind | None = None
    """A virtual function of a network card near the GPU; None: what is asked for with the VM."""
    anti_affinity: AntiAffinity = "none"
    """What two VMs of this offering and tenant may not share."""
    migratable: bool = False
    """Whether the VM may be moved while it runs."""
    provision: tuple[str, ...] = ()
    """Roles that are run in the guest of a new VM, as ``vm provision`` has them."""
    provision_settings: Mapping[str, int | str] = field(default_factory=dict, hash=False)
    """What is said to these roles, by name; what is said with the VM goes before it."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Offering:
        """Of JSON's values; ``hosts`` as the core has them."""
        scheduler = fields["scheduler"]
        lists = {name: tuple(fields[name]) for name in ("gpu_models", "provision")}
        parts = {
            "scheduler": None if scheduler is None else Scheduler(**scheduler),
            "parameters": VgpuParameters(**fields["parameters"]),
        }
        return cls(**{**fields, **lists, **parts})

    def as_asked_for(self, device: Device) -> Device:
        """The device, set as the offering says."""
        parameters = None if self.parameters == VgpuParameters() else self.parameters
        return replace(device, scheduler=self.scheduler, parameters=parameters)

    @property
    def devices(self) -> int:
        """vGPUs or whole GPUs in one VM."""
        return self.gpu_count or self.vgpu_count

    @property
    def disk_limits(self) -> DiskLimits | None:
        """Of each disk of its VMs; None: there are none."""
        return DiskLimits.of_offering(partial(getattr, self))

    @property
    def page_kib(self) -> int:
        """Size of the huge pages; 0: ordinary ones."""
        return 0 if self.hugepages is None else PAGE_KIB[self.hugepages]

    @property
    def kept_for(self) -> str | None:
        """The only tenant that has it: its hosts are kept for that one. None: every tenant has it."""
        return dict(self.hosts).get(KEPT_FOR)

    @property
    def written_down(self) -> bool:
        """Somebody chose what it says; it does not follow from a name of NVIDIA's."""
        return self.origin in {"catalogue", "site"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """A combination that cannot work, and the rule that forbids it."""

    rule: str
    """Stable dotted code, e.g. ``uvm.fractional_time_sliced``."""
    field: str
    """Path of the field to change, e.g. ``parameters.uvm``."""
    message: str


MAX_COUNTED_MIB: Final = 48 * 1024
"""Of one device: hosts with bigger GPUs do not have memory and CPUs in proportion."""
ANY_GPU_MIB: Final = 32 * 1024
"""What a whole GPU of an unknown model counts as."""
_MIB_FOR_A_VCPU: Final = 8 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class VmSize:
    vcpus: int
    memory_mib: int
    disk_bytes: int


def vm_size(offering: Offering, framebuffer_mib: int | None) -> VmSize:
    """What a VM of the offering has that asks for nothing.

    For each 8 GiB of framebuffer a vCPU, for each GiB half a GiB of memory and a GiB of disk, at least the smallest
    VM's. ``framebuffer_mib``: of one of its devices; None: unknown.
    """
    unknown = ANY_GPU_MIB if offering.gpu_count else 0
    each = min(unknown if framebuffer_mib is None else framebuffer_mib, MAX_COUNTED_MIB)
    counted = offering.devices * each
    gib = counted // 1024
    return VmSize(
        vcpus=offering.vcpus or max(DEFAULT_VCPUS, counted // _MIB_FOR_A_VCPU),
        memory_mib=max(DEFAULT_MEMORY_MIB, gib // 2 * 1024) if offering.memory is None else memory_mib(offering.memory),
        disk_bytes=max(DEFAULT_DISK_BYTES, gib * GIB) if offering.disk is None else disk_bytes(offering.disk),
    )


def unsupported(offering: Offering) -> tuple[str, ...]:
    """In words, one for each property; empty: all that the offering promises is done."""
    wants = {
        "a scheduler": offering.scheduler is not None and offering.kind != "time_sliced",
        "mixed sizes": offering.mixed_sizes and offering.kind != "time_sliced",
        "a GPU for each VM": offering.anti_affinity == "gpu" and offering.kind != "passthrough",
    }
    return tuple(name for name, wanted in wants.items() if wanted)


def has_whole_pages(offering: Offering, memory_mib: int) -> bool:
    """Whether so much memory is whole huge pages, where the offering asks for those."""
    return offering.page_kib == 0 or memory_mib * 1024 % offering.page_kib == 0


def check_whole_pages(offering: Offering, memory_mib: int) -> None:
    """:raises InvalidInput: ``memory.not_whole_pages``"""
    if not has_whole_pages(offering, memory_mib):
        raise InvalidInput(
            "memory.not_whole_pages",
            f"{show_size(memory_mib * MIB)} of memory are not whole huge pages of {offering.hugepages}",
            hint=f"profile {offering.name} has memory in huge pages: ask for a multiple of {offering.hugepages}iB",
        )


def check_one_gpu(offering: Offering, gpu: str | None) -> None:
    """``gpu``: the only one that will do. :raises InvalidInput: ``gpu.one_named``"""
    if gpu is not None and offering.gpu_count > 1:
        raise InvalidInput(
            "gpu.one_named",
            f"GPU {gpu} is one, and {offering.name} takes {offering.gpu_count} of a host",
            hint="name their host alone: which of its GPUs form a set is chosen for the VM",
        )


def check_supported(offering: Offering) -> Offering:
    """The offering itself. :raises InvalidInput: ``profile.unsupported``"""
    missing = unsupported(offering)
    if missing:
        raise InvalidInput(
            "profile.unsupported",
            f"profile {offering.name} asks for what is not set on hosts so far: {', '.join(missing)}",
            hint="'vgpuctl profile list' shows what this site can give",
        )
    return offering
