# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` names: a way to give a VM GPU power, with everything that must be set for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.labels import KEPT_FOR, Labels

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

    @property
    def devices(self) -> int:
        """vGPUs or whole GPUs in one VM."""
        return self.gpu_count or self.vgpu_count

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
