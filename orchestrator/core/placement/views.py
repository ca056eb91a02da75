# SPDX-License-Identifier: Apache-2.0
"""What the engine is told and what it answers. Plain values; sizes are MiB unless the name says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from orchestrator.core.errors import Reason
from orchestrator.core.geometry.cut import CutKind
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.rules.named import gpu_of, host_of
from orchestrator.core.placement.rules.rule import Amounts, Fact, GpuInUse, HostInUse, Need
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
    since_s: float = 0.0
    """When it was claimed; seconds on the same clock as ``Request.now_s``."""
    vcpus: int = 0
    memory_mib: int = 0
    needs: tuple[Need, ...] = ()
    """Those that may keep others off."""
    spent: Amounts = ()
    """What it has of its host beside vCPUs and memory. Unknown, as 0 vCPUs and MiB: plans count the GPU only."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class HostView:
    """One host with what is free on it now, claims subtracted."""

    host_id: str
    name: str
    free_vcpus: int
    free_memory_mib: int
    gpus: tuple[GpuView, ...]
    cordoned: bool = False
    reason: str | None = None
    """Why it is cordoned or not ready; None with ``cordoned``: no reason was given."""
    reason_code: str = "host.not_ready"
    """Of ``reason``."""
    free: Amounts = ()
    """What else VMs spend of it."""
    vcpus: int | None = None
    """How many it has; no VM has more. None: not known."""
    fabric_partitions: tuple[tuple[int, ...], ...] = ()
    """Module ids of the baseboard's partitions; empty: no fabric, any set of GPUs will do."""
    whole_gpus: bool = True
    """Whether GPUs of it may be given out as a whole."""
    vms: frozenset[str] = frozenset()
    """Every VM on it, for affinity."""
    facts: tuple[Fact, ...] = ()
    """What VMs may need of it beside room."""
    rack: str | None = None
    """Its label ``rack``, for people."""


HostChecks = tuple[Callable[[HostInUse], Iterator[str]], ...]
GpuChecks = tuple[Callable[[GpuInUse], Iterator[str]], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One VM asked for. ``profile`` is resolved: a vGPU type's full name, a MIG profile's name or ``gpu:N``."""

    vm_id: str
    profile: str
    vcpus: int
    memory_mib: int
    tenant: str
    count: int = 1
    """Devices of that profile in the VM, all on one host. ``gpu:N`` counts as one device."""
    gpu_models: tuple[str, ...] = ()
    """Models that will do; empty: any."""
    cut_kinds: tuple[CutKind, ...] = ()
    """Ways of cutting that will do, e.g. ``("mixed",)``; empty: any that has the profile."""
    needs: tuple[Need, ...] = ()
    """Of its host and GPUs, beside room on the GPU, vCPUs and memory."""
    priority: int = 0
    now_s: float = 0.0
    demand: Demand = field(init=False, repr=False, compare=False)
    """What of it decides which places are legal. This and the next four are made once, as every step of a decision asks
    for them."""
    is_named: bool = field(init=False, repr=False, compare=False)
    """Whether only one host, or GPU, will do."""
    is_filtered: bool = field(init=False, repr=False, compare=False)
    """Whether some hosts or GPUs are ruled out for reasons other than room."""
    off_host: tuple[HostChecks, HostChecks] = field(init=False, repr=False, compare=False)
    """Those needs' that judge hosts, told before lack of vCPUs or memory and after it."""
    off_gpu: tuple[GpuChecks, GpuChecks] = field(init=False, repr=False, compare=False)
    """Those needs' that judge GPUs, told before that a GPU may not be used and after it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "demand", Demand(self.profile, self.cut_kinds, self.gpu_models))
        object.__setattr__(self, "is_named", self.host is not None or gpu_of(self.needs) is not None)
        object.__setattr__(self, "is_filtered", any(need.filters for need in self.needs))
        for name in ("off_host", "off_gpu"):
            own = [need for need in self.needs if getattr(type(need), name) is not getattr(Need, name)]
            early = tuple(getattr(need, name) for need in own if not need.after_shortage)
            object.__setattr__(self, name, (early, tuple(getattr(need, name) for need in own if need.after_shortage)))

    @property
    def whole_gpus(self) -> int:
        """N of ``gpu:N``, 0 for parts of GPUs."""
        return self.demand.whole_gpus

    @property
    def host(self) -> str | None:
        """Id or name of the only host that will do."""
        return host_of(self.needs)

    @property
    def judges_empty_gpus(self) -> bool:
        """Whether one of a host's empty GPUs may do for it where another one does not."""
        return any(need.judges_empty_gpus for need in self.needs)

    @property
    def near_gpus(self) -> bool:
        """Whether VMs on other GPUs of a host may make room for it."""
        return any(need.near_gpus for need in self.needs)

    @property
    def seeks_gpus(self) -> bool:
        """Whether it takes looking at each GPU of a host to know that none will do: what it needs near it differs."""
        return any(need.near_gpus and need.judges_empty_gpus for need in self.needs)


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
    spent: Amounts = ()
    """What it takes of the host beside vCPUs and memory."""

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        """The GPUs, in the order of the parts."""
        return tuple(part.gpu_id for part in self.parts)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing fits. ``reasons`` are grouped, biggest group first: ``subjects`` are host names or GPU ids.

    Codes are those of the rules (core/placement/rules) and of core/placement/reasons.py.
    """

    reasons: tuple[Reason, ...]

    @property
    def code(self) -> str:
        """``profile.unsupported`` when nothing could ever fit, otherwise ``gpu.no_capacity``."""
        codes = {reason.code for reason in self.reasons}
        return "profile.unsupported" if codes == {"profile.unsupported"} else "gpu.no_capacity"
