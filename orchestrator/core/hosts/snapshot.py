# SPDX-License-Identifier: Apache-2.0
"""What was observed on one host at one moment. The agent fills it in, everybody else only reads it.

Unknown is ``None`` or an entry in ``problems``, never a guess and never an empty list.
Sizes are MiB for device and host memory, bytes for files. PCI addresses are canonical (core/gpu/pci.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.core.gpu.device import MAKES_VGPUS, Device, Framework, VgpuParent
from orchestrator.core.gpu.fabric import FabricSnapshot, GpuFabric
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.licence import VgpuLicence
from orchestrator.core.gpu.vgpu_metadata import RunningVgpu
from orchestrator.core.gpu.vgpu_parameters import SchedulerState, words
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.hosts.domain import MadeAs
from orchestrator.core.hosts.nic import HostNic
from orchestrator.core.protocol import PROTOCOL_VERSION

Confinement = Literal["apparmor", "selinux", "none"]
"""What keeps each QEMU of a host to its own files, as libvirt says of itself; ``none``: its account alone."""

NOT_TOLD: Final = "unknown"
"""A version that could not be asked."""
DomainState = Literal["running", "paused", "shut_off", "crashed", "other"]


@dataclass(frozen=True, kw_only=True)
class HostVgpuType:
    """A vGPU type as this host's driver names it. ``type_id`` is only good on this host and driver."""

    name: str
    type_id: int
    framebuffer_mib: int
    max_instances: int
    """Most vGPUs of this type on one GPU, all of one size."""


@dataclass(frozen=True, kw_only=True)
class GpuInstance:
    """A GPU instance that exists. ``id`` is good until it is destroyed; ``start`` and ``size`` are memory slots."""

    id: int
    """The driver's number of it."""
    profile: str
    """Offering, vGPU type, MIG profile or gpu:N."""
    start: int
    """First slot."""
    size: int
    """In slots."""
    compute: tuple[int, ...]
    """Ids of the compute instances in it."""
    owner: str | None
    """VM id from the agent's ledger; None: not made by us."""
    devices: tuple[str, ...] = ()
    """UUIDs of its MIG devices, others each time that it is made; empty as well from an agent that does not tell."""
    capabilities: tuple[str, ...] = ()
    """Files on the host that say which device files a container needs: of the instance, of its compute instances."""


@dataclass(frozen=True, kw_only=True)
class GpuSnapshot:
    """One physical GPU."""

    address: str
    """PCI address."""
    uuid: str
    """NVIDIA's UUID of the GPU."""
    serial: str | None
    model: str
    """The driver's name for it, e.g. ``Tesla T4``."""
    pci_vendor: str
    pci_device: str
    pci_subsystem_vendor: str
    pci_subsystem_device: str
    """Four lower-case hex digits each."""
    numa_node: int | None
    """NUMA node that it is nearest to."""
    memory_mib: int | None
    """None: its driver does not tell, or does not have it. Older agents say 0."""
    driver: str | None
    """Kernel driver bound to it: ``nvidia``, ``vfio-pci``, ``nouveau``, None."""
    framework: Framework
    """How the driver offers vGPUs here, probed."""
    sriov_total_vfs: int
    sriov_enabled_vfs: int
    mig_enabled: bool | None
    """Whether MIG mode is on; None: the GPU has none."""
    heterogeneous: bool | None
    """Whether vGPUs of several sizes may live on it at once; None: the driver cannot say."""
    module_id: int | None
    types: tuple[HostVgpuType, ...]
    parents: tuple[VgpuParent, ...]
    problems: tuple[str, ...] = ()
    """What keeps it from being used, for people."""
    iommu_shared_with: tuple[str, ...] | None = ()
    """PCI functions of its IOMMU group that do not belong to it, bridges left out; None: it has no group."""
    mig_pending: bool | None = None
    """The MIG mode after the GPU's next reset; None: it has none, or the driver or an old agent does not tell."""
    instances: tuple[GpuInstance, ...] = ()
    """GPU instances, whoever made them."""
    mig_profiles: tuple[str, ...] = ()
    """Names of the GPU-instance profiles that its driver has; empty: no MIG, or it or an old agent does not tell."""
    scheduler: SchedulerState | None = None
    """How it divides its time among its vGPUs; None: the driver lets nobody choose, as in MIG mode, or does not say."""
    licences: tuple[VgpuLicence, ...] = ()
    """Of the vGPUs that running VMs have open; none from a driver or an agent that does not tell."""
    bridges: tuple[str, ...] = ()
    """PCI addresses of the ports above it, from the root port on; none from an agent that does not tell."""
    ecc: bool | None = None
    """Whether ECC is on; None: it has none, or its driver or an old agent does not tell."""
    moves_vgpus: bool | None = None
    """Whether its driver moves vGPUs of it with their state, as NVML says; None: it or an old agent does not tell."""
    metadata: str | None = None
    """What its driver says of it to a vGPU that would move there, in base64; None: it or an old agent does not tell."""
    open_vgpus: tuple[RunningVgpu, ...] = ()
    """That running VMs have open and that say of themselves what a GPU must take; none from an older agent."""
    mig_found: bool | None = None
    """The MIG mode that it had before we changed it. None: it has none, or its agent does not tell or has lost that."""
    signals: tuple[GpuSignal, ...] = ()
    """Its faults since the host booted, or it was last reset; none from an agent that does not tell."""
    power_min_watts: int | None = None
    """The lowest limit of power that its driver takes. None: it or an old agent tells none, or lets none be set."""
    power_default_watts: int | None = None
    """The limit that its driver begins with."""
    power_max_watts: int | None = None
    """The highest limit of power that its driver takes."""
    power_limit_watts: int | None = None
    """What it was told to keep to last; None as well: its driver does not have it now."""
    fabric: GpuFabric | None = None
    """None: it has none, its driver does not have it now, or it or an old agent does not tell."""

    def lacks(self, device: Device) -> tuple[str, str] | None:
        """A setting that its driver does not have, and what a device asks of it, for people."""
        wanted = device.asks_of_gpu
        if wanted is None or self.mig_enabled or self.scheduler is not None:
            return None
        return "no scheduler", words(wanted)

    @property
    def backs_vgpus_with_mig(self) -> bool:
        """Whether vGPUs can be made in GPU instances of it, and its mode switched for them."""
        return self.framework in MAKES_VGPUS and self.mig_enabled is not None


@dataclass(frozen=True, kw_only=True)
class DomainSnapshot:
    """A libvirt domain."""

    uuid: str
    name: str
    state: DomainState
    owner: str | None
    """VM id from the ledger; None: not ours."""
    devices: tuple[str, ...]
    """UUIDs and PCI addresses of its hostdevs."""
    addresses: tuple[str, ...] = ()
    """IP addresses seen on its interfaces."""
    vcpus: int | None = None
    memory_mib: int | None = None
    disk_bytes: int | None = None
    """What its disks hold at most, together; only of domains that are not ours. None: not told, or not known."""
    affinity: tuple[str, ...] | None = None
    """On which of the host's CPUs its vCPUs run, as ``CpuPlace.affinity`` has it; none: on any. None: not told."""
    memory_words: str | None = None
    """What its memory is made of and where it is, as ``CpuPlace.memory_words`` has it. None: not told."""
    cut_off: tuple[str, ...] = ()
    """Networks that it is defined to be on while its interfaces are plugged into nothing."""
    managed_by: str = ""
    """The other controller that its definition names; empty: none that says so, or not told. Of domains of others."""
    unsafe: tuple[str, ...] = ()
    """What it has that no VM of ours may have, for people. Of domains of others."""
    transient: bool = False
    """It has no definition that stays when it stops. Of domains of others."""
    free_ports: int | None = None
    """Devices that can still be attached while it runs. None: it does not run, or not told."""
    qemu_replaced: bool = False
    """It runs, by another QEMU than the one that is installed now. False as well: not told."""
    made_as: MadeAs | None = None
    """Of a domain of ours that is asked for alone. None: not told, as by an older agent."""

    @property
    def active(self) -> bool:
        """A QEMU process holds its devices, whatever the guest does."""
        return self.state not in {"shut_off", "crashed"}


@dataclass(frozen=True, kw_only=True)
class FileSnapshot:
    """A volume, seed or base image below the agent's storage directory."""

    name: str
    size_bytes: int
    """What it takes of the disk, without its holes."""
    owner: str | None
    length_bytes: int = 0
    """Of a data volume, what its guest sees; 0: it is none, or an older agent does not tell."""


@dataclass(frozen=True, kw_only=True)
class PoolSnapshot:
    """A directory that is mounted on the host as a pool (core/hosts/pool.py). Bytes are rounded, so that they change
    seldom."""

    name: str
    pool_id: str | None
    """That its directory holds; None: it holds none yet, or does not answer."""
    capacity_bytes: int = 0
    """What is free there and what our disks and volumes take, whichever host made them."""
    free_bytes: int = 0
    problem: str | None = None
    """Why it cannot be used, for people."""


@dataclass(frozen=True, kw_only=True)
class HostCpu:
    """The CPUs of a host, as guests see them that have the host's own model."""

    model: str
    """The kernel's name of it."""
    features: str
    """Differs where one has a feature (a flag of /proc/cpuinfo) that the other lacks."""
    page_kib: int
    """Of the kernel's ordinary pages."""


@dataclass(frozen=True, kw_only=True)
class HostSnapshot:
    """Everything the control plane knows of a host."""

    machine_id: str
    boot_id: str
    hostname: str
    agent_version: str
    kernel: str
    os_name: str
    libvirt_version: str
    """:data:`NOT_TOLD`: libvirt did not answer; see ``problems``."""
    qemu_version: str
    driver_version: str | None
    """None: the NVIDIA driver did not answer; see ``problems``."""
    vcpus: int
    memory_mib: int
    storage_free_bytes: int
    storage_total_bytes: int
    iommu: bool
    gpus: tuple[GpuSnapshot, ...]
    domains: tuple[DomainSnapshot, ...]
    volumes: tuple[FileSnapshot, ...]
    seeds: tuple[FileSnapshot, ...]
    images: tuple[FileSnapshot, ...]
    """Base images; the name is ``<sha256>.<format>``."""
    networks: tuple[str, ...]
    """Names of libvirt networks that are active."""
    problems: tuple[str, ...] = field(default=())
    ledger_lost: bool = False
    """Whose the things on it are is not known to its agent: it does nothing before that is settled."""
    epoch: int = 0
    """The highest fencing epoch that the agent's ledger has seen; 0 from an agent that does not tell."""
    protocol: int = 3
    """Version that the agent speaks (core/protocol.py); those before 4 do not tell."""

    data: tuple[FileSnapshot, ...] = ()
    """Data volumes, with what they take now; the owner is the volume's id. Empty from an agent that does not tell."""
    confinement: Confinement | None = None
    """None from an agent that does not tell, and while libvirt does not answer."""
    fabric: FabricSnapshot | None = None
    """None: no GPU of it is on a baseboard with a fabric manager, or its agent does not tell."""

    bridges: tuple[Bridge, ...] = ()
    """Those that the host has by itself, libvirt's own left out; none from an agent that does not tell."""
    nodes: tuple[NumaNode, ...] = ()
    """Its NUMA nodes; none from an agent that does not tell, and of a kernel that knows none."""
    features: tuple[str, ...] | None = None
    """What its software can give VMs (core/hosts/features.py), and what only newer controllers know. None from an agent
    that does not tell."""
    nics: tuple[HostNic, ...] = ()
    """Network cards that can have virtual functions; none from an agent that does not tell."""
    cpu: HostCpu | None = None
    """None from an agent that does not tell."""
    dcgm_version: str | None = None
    """None: it has no DCGM, or its agent does not tell."""
    pools: tuple[PoolSnapshot, ...] = ()
    """Mounted here; none from an agent that does not tell."""
    sessions_full: bool = False
    """Lately a controller found all places of its agent's sessions taken."""
    restoring: bool = False
    """Its agent is still starting again what ran before the host was booted."""

    @property
    def agent_too_old(self) -> bool:
        """It is observed, its VMs can be stopped and deleted, and it is upgraded; nothing new is made there."""
        return self.protocol < PROTOCOL_VERSION

    def lacks(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Those of these PCI addresses where no GPU is on its bus."""
        return tuple(sorted(set(gpus) - {gpu.address for gpu in self.gpus}))


@dataclass(frozen=True, kw_only=True)
class Unchanged:
    """The answer to a look at a host that is as its asker knows it, but for what changes by itself."""

    storage_free_bytes: int
