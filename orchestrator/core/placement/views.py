# SPDX-License-Identifier: Apache-2.0
"""What the engine is told and what it answers. Plain values; sizes are MiB unless the name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.core.errors import Reason
from orchestrator.core.geometry.cut import CutKind
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.rules.rule import Fact, Need
from orchestrator.core.placement.state_table import Demand


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupied:
    """One place on a GPU that a claim holds (all its slots together). ``start`` and ``size`` are slots of the cut."""

    vm_id: str
    profile: str
    """The resolved name the claim was made with: a vGPU type, a MIG profile or ``gpu:N``."""
    start: int
    size: int
    tenant: str = ""
    priority: int = 0
    migratable: bool = False
    since_s: float = 0.0
    """When it was claimed; seconds on the same clock as ``Request.now_s``."""
    vcpus: int = 0
    memory_mib: int = 0
    disk_gib: int = 0
    """What moves along with it, for plans that move or preempt it. 0: unknown, plans count the GPU only."""
    needs: tuple[Need, ...] = ()
    """Of whatever host and GPUs take it."""
    pinned: int = 0
    """vCPUs that have CPUs of their own; ``vcpus`` counts none of them."""
    numa_strict: bool = False
    cpus: tuple[tuple[int, int], ...] = ()
    """(NUMA node, CPUs of it) that it has alone."""
    huge_mib: int = 0
    """Memory in huge pages of ``page_kib``; ``memory_mib`` counts none of it."""
    page_kib: int = 0
    node_memory: tuple[tuple[int, int], ...] = ()
    """(NUMA node, MiB of it) that must come from there: of huge pages, or of who insists on the node."""
    nic: str = ""
    """The network card that it has a function of; empty: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuView:
    """One GPU as the database and the last snapshot show it."""

    gpu_id: str
    geometry: Geometry
    """From ``geometry.build.build_geometry``: what the driver says this GPU can be cut into."""
    cut: str | None = None
    """Name of the cut that its claims share (``mig``, ``mixed``, ``time_sliced:4096``, ``whole``); None: no claims."""
    occupied: tuple[Occupied, ...] = ()
    numa: int | None = None
    module_id: int | None = None
    usable: bool = True
    """False: never placed on (quarantined, not ours, driver gone); ``reason_unusable`` says why."""
    reason_unusable: str | None = None
    reason_not_whole: str | None = None
    """Why parts of it may be given out and all of it may not; None: it may."""
    reason_alone: str | None = None
    """Why it may be given out by itself and not together with other whole GPUs; None: it may."""
    facts: tuple[Fact, ...] = ()
    """What VMs may need of it beside room."""
    near_nics: tuple[str, ...] = ()
    """Network cards near it whose functions may be given, nearest first."""
    nics_under_switch: bool = False
    """Whether these are under one PCIe switch with it; else they are on its NUMA node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostView:
    """One host with what is free on it now, claims subtracted."""

    host_id: str
    name: str
    free_vcpus: int
    free_memory_mib: int
    free_disk_gib: int
    gpus: tuple[GpuView, ...]
    cordoned: bool = False
    reason: str | None = None
    """Why it is cordoned or not ready; None with ``cordoned``: no reason was given."""
    reason_code: str = "host.not_ready"
    """Of ``reason``."""
    free_nics: tuple[tuple[str, int], ...] = ()
    """(network card whose functions may be given, those of them that are free)."""
    vcpus: int | None = None
    """How many it has; no VM has more. None: not known."""
    numa_free_vcpus: tuple[tuple[int, int], ...] = ()
    """(NUMA node, free CPUs that VMs may have alone); empty: none, strict NUMA then cannot be promised."""
    numa_free_memory: tuple[tuple[int, int], ...] = ()
    """(NUMA node, MiB that VMs which insist on it may have); of nodes that are not named it is not known."""
    numa_shared: tuple[tuple[int, int], ...] = ()
    """(NUMA node, CPUs of it that VMs share)."""
    free_pages: tuple[tuple[int, int, int], ...] = ()
    """(KiB of a huge page, NUMA node, MiB of them that are free); a size that is not named the host has not."""
    core_threads: int = 1
    """CPUs of a core: whole cores are given out."""
    pinnable: int | None = None
    """CPUs that are kept for VMs that have theirs alone, taken or free; None: its agent does not tell its CPUs."""
    fabric_partitions: tuple[tuple[int, ...], ...] = ()
    """Module ids of the baseboard's partitions; empty: no fabric, any set of GPUs will do."""
    whole_gpus: bool = True
    """Whether GPUs of it may be given out as a whole."""
    vms: frozenset[str] = frozenset()
    """Every VM on it, for affinity."""
    facts: tuple[Fact, ...] = ()
    """What VMs may need of it beside room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One VM asked for. ``profile`` is resolved: a vGPU type's full name, a MIG profile's name or ``gpu:N``."""

    vm_id: str
    profile: str
    vcpus: int
    memory_mib: int
    tenant: str
    disk_gib: int = 0
    count: int = 1
    """Devices of that profile in the VM, all on one host. ``gpu:N`` counts as one device."""
    host: str | None = None
    """Id or name of the only host that will do."""
    gpu: str | None = None
    """The only GPU that will do, as its host calls it."""
    gpu_models: tuple[str, ...] = ()
    """Models that will do; empty: any."""
    cut_kinds: tuple[CutKind, ...] = ()
    """Ways of cutting that will do, e.g. ``("mixed",)``; empty: any that has the profile."""
    pinned: int = 0
    """vCPUs that shall have CPUs of their own; ``vcpus`` counts none of them."""
    numa_strict: bool = False
    """vCPUs and memory must come from the NUMA node of the GPU."""
    huge_mib: int = 0
    """Memory that shall be huge pages of ``page_kib``; ``memory_mib`` counts none of it."""
    page_kib: int = 0
    nic: bool = False
    """A function of a network card near one of its GPUs."""
    needs: tuple[Need, ...] = ()
    """Of its host and GPUs, beside room."""
    priority: int = 0
    migratable: bool = False
    now_s: float = 0.0
    demand: Demand = field(init=False, repr=False, compare=False)
    """What of it decides which places are legal: made once, as every step of a decision asks for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "demand", Demand(self.profile, self.cut_kinds, self.gpu_models))

    @property
    def whole_gpus(self) -> int:
        """N of ``gpu:N``, 0 for parts of GPUs."""
        return self.demand.whole_gpus

    @property
    def is_filtered(self) -> bool:
        """Whether some hosts or GPUs are ruled out for reasons other than room."""
        spends = self.numa_strict or self.nic or self.disk_gib or self.pinned or self.page_kib
        return bool(self.host or self.gpu or spends) or any(need.filters for need in self.needs)

    @property
    def of_nodes(self) -> bool:
        """Whether it takes something that is counted near GPUs: by NUMA node, or by network card."""
        return bool(self.pinned or self.numa_strict or self.page_kib or self.nic)


@dataclass(frozen=True, slots=True)
class Part:
    """One device's place: claim every slot of ``slots`` on ``gpu_id`` under ``cut``."""

    gpu_id: str
    cut: str
    slots: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the VM goes. One part per device; whole GPUs have one part per GPU, each with slot 0."""

    host_id: str
    parts: tuple[Part, ...]
    why: str
    """One sentence for people."""
    nic: str = ""
    """The network card of which it gets a function; empty: none."""

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """The GPUs, in the order of the parts."""
        return tuple(part.gpu_id for part in self.parts)

    @property
    def gpu_id(self) -> str:
        """The first part's GPU; the only one unless several devices were asked for."""
        return self.parts[0].gpu_id

    @property
    def cut(self) -> str:
        """The cut to claim under; the same for all parts."""
        return self.parts[0].cut

    @property
    def slots(self) -> tuple[int, ...]:
        """The first part's slots."""
        return self.parts[0].slots

    @property
    def start(self) -> int:
        """The first part's first slot: memory slot of a GPU instance, placement id of a mixed size."""
        return self.parts[0].start

    @property
    def size(self) -> int:
        """The first part's number of slots."""
        return self.parts[0].size


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing fits. ``reasons`` are grouped, biggest group first: ``subjects`` are host names or GPU ids.

    Codes: ``profile.unsupported`` · ``gpu.no_capacity`` · ``gpu.fragmented`` · ``gpu.other_size_in_use`` ·
    ``gpu.other_cut_in_use`` · ``gpu.no_partition`` · ``gpu.too_few`` · ``gpu.not_whole`` · ``gpu.unusable`` ·
    ``gpu.alone`` (its links to other GPUs are faulty) ·
    ``gpu.other_tenant`` · ``gpu.other`` (another GPU was named) · ``gpu.other_scheduler`` · ``gpu.no_scheduler`` ·
    ``gpu.no_mixed_sizes`` ·
    ``host.other_tenant`` · ``host.vcpus`` · ``host.too_small`` · ``host.memory`` · ``host.no_gpus`` (of the host that
    was named) · ``host.disk`` · ``host.cpus`` · ``host.none_pinnable`` · ``host.cpus_unknown`` ·
    ``host.no_hugepages`` · ``host.hugepages`` ·
    ``host.numa`` · ``host.no_nic`` · ``host.nics_taken`` · ``gpu.no_nic`` · ``gpu.nics_taken`` ·
    ``host.devices`` · ``host.cordoned`` ·
    ``host.not_ready`` · ``host.unconfined`` · ``host.anti_affinity`` · ``host.labels`` · ``host.kept`` ·
    ``host.no_bridge`` · ``host.openvswitch`` · ``host.no_uefi`` ·
    ``host.other`` (another host was named) · ``host.none`` (there are no hosts).
    """

    reasons: tuple[Reason, ...]

    @property
    def code(self) -> str:
        """``profile.unsupported`` when nothing could ever fit, otherwise ``gpu.no_capacity``."""
        codes = {reason.code for reason in self.reasons}
        return "profile.unsupported" if codes == {"profile.unsupported"} else "gpu.no_capacity"
