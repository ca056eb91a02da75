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
    kind: OfferingKind
    version: int = 1
    origin: Origin = "catalogue"
    description: str = ""
    vgpu_type: str | None = None
    vgpu_count: int = 1
    """vGPUs of that type in one VM."""
    mig_profile: str | None = None
    gpu_count: int = 0
    """Whole GPUs, for passthrough."""
    gpu_models: tuple[str, ...] = ()
    """GPU models that will do; empty: any that offers the rest."""
    hosts: Labels = ()
    """Labels that a host must have, all of them, to take a VM of it."""
    scheduler: Scheduler | None = None
    parameters: VgpuParameters = field(default_factory=VgpuParameters)
    vcpus: int | None = None
    """Of a VM of it that asks for no number; None: by its framebuffer (core/offerings/vm_size.py)."""
    memory: str | None = None
    """The same of its memory, like ``32GiB``."""
    disk: str | None = None
    """The same of its disk."""
    mixed_sizes: bool = False
    """The GPU is in heterogeneous mode: vGPUs of several sizes may share it."""
    numa: NumaPolicy = "prefer"
    cpu: CpuPolicy = "shared"
    hugepages: HugePageSize | None = None
    """What the VM's memory is made of; None: ordinary pages."""
    firmware: Firmware = "bios"
    """What its guests boot by."""
    nic: NicKind | None = None
    """A function of a network card near the GPU; None: what is asked for with the VM."""
    anti_affinity: AntiAffinity = "none"
    migratable: bool = False
    """Whether the VM may be moved while it runs."""
    provision: tuple[str, ...] = ()
    """Roles that are run in the guest of a new VM of it (core/guest/roles.py)."""
    provision_settings: Mapping[str, int | str] = field(default_factory=dict, hash=False)
    """What is said to them; what is said with the VM goes before it."""

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
