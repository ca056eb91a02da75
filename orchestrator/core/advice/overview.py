# SPDX-License-Identifier: Apache-2.0
"""How much of the GPUs is used, by model and by tenant: the data behind ``status``; by host and rack: behind the
map's overview."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from orchestrator.core.advice.gpu_map import EVERY_GPU, HIDDEN_VM, GpuFilter, GpuRow, GpuUse, use_of
from orchestrator.core.hosts.host import HostState


@dataclass(frozen=True, slots=True)
class ModelUse:
    """GPUs of one model. To a tenant: those that its VMs are on, and nothing of what others have."""

    model: str
    """As NVIDIA calls it."""
    gpus: int
    """How many there are."""
    free: int | None
    """With nothing on them and usable; None: not told."""
    unusable: int | None
    """On which nothing new is placed: cordoned or broken; None: not told."""
    used: float
    """How many whole GPUs the parts that VMs have add up to."""


@dataclass(frozen=True, slots=True)
class TenantUse:
    """What VMs of one tenant have."""

    gpus: int
    """GPUs that some VM of it is on."""
    used: float
    """How many whole GPUs its parts of them add up to."""


@dataclass(slots=True)
class _OfModel:
    gpus: int = 0
    used: float = 0.0
    hidden: int = 0
    """GPUs of which it is not told how much is free."""
    uses: Counter[GpuUse] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class FleetUse:
    """How much of some GPUs is used; of a host it is worked out once, and added to that of others."""

    models: Mapping[str, _OfModel]
    shares: Mapping[str, TenantUse]
    """By tenant, not rounded."""

    @classmethod
    def of(cls, rows: Iterable[GpuRow]) -> FleetUse:
        """Each row is one GPU. What is not ours is nobody's."""
        return cls.added(
            cls(
                {row.model: _OfModel(1, _used(row), row.free is None, Counter([use_of(row)]))},
                {tenant: TenantUse(1, slots / row.slots) for tenant, slots in _shares(row).items()},
            )
            for row in rows
        )

    @classmethod
    def added(cls, parts: Iterable[FleetUse], gone: Iterable[FleetUse] = ()) -> FleetUse:
        """Of all of them together, without those that are ``gone``, which are parts of these."""
        models: dict[str, _OfModel] = {}
        shares: dict[str, TenantUse] = {}
        for sign, part in chain(((1, part) for part in parts), ((-1, part) for part in gone)):
            for model, counts in part.models.items():
                total = models.setdefault(model, _OfModel())
                total.gpus += sign * counts.gpus
                total.used += sign * counts.used
                total.hidden += sign * counts.hidden
                for use, gpus in counts.uses.items():
                    total.uses[use] += sign * gpus
            for tenant, share in part.shares.items():
                before = shares.get(tenant, _NOTHING)
                shares[tenant] = TenantUse(before.gpus + sign * share.gpus, before.used + sign * share.used)
        return cls(
            {model: counts for model, counts in models.items() if counts.gpus},
            {tenant: share for tenant, share in shares.items() if share.gpus},
        )

    def by_model(self) -> tuple[ModelUse, ...]:
        """By name of the model."""
        return tuple(
            ModelUse(
                model,
                counts.gpus,
                None if counts.hidden else counts.uses["empty"],
                None if counts.hidden else counts.uses["unusable"],
                _rounded(counts.used),
            )
            for model, counts in sorted(self.models.items())
        )

    def by_tenant(self) -> dict[str, TenantUse]:
        """Of each tenant with a VM on some GPU."""
        return {tenant: TenantUse(share.gpus, _rounded(share.used)) for tenant, share in self.shares.items()}

    def how_many(self, only: GpuFilter) -> int:
        """GPUs that it picks, whatever it says of their host."""
        return sum(
            counts.gpus if only.use is None else counts.uses[only.use]
            for model, counts in self.models.items()
            if only.picks_model(model)
        )

    def of_host(self, only: GpuFilter = EVERY_GPU) -> tuple[int, int, int, float]:
        """GPUs of the models that it picks, those of them that are empty and unusable, and how many are used."""
        counted = [counts for model, counts in self.models.items() if only.picks_model(model)]
        return (
            sum(counts.gpus for counts in counted),
            sum(counts.uses["empty"] for counts in counted),
            sum(counts.uses["unusable"] for counts in counted),
            _rounded(sum(counts.used for counts in counted)),
        )


@dataclass(frozen=True, slots=True)
class HostUse:
    """One host, as the overview has it."""

    host: str
    rack: str | None
    state: HostState
    gpus: int
    empty: int
    unusable: int
    used: float


@dataclass(frozen=True, slots=True)
class RackUse:
    """Hosts with the same label ``rack``, as columns: each list has an entry for each host, in the order of their
    names."""

    rack: str | None
    """Value of the label; None: these hosts have none."""
    hosts: tuple[str, ...]
    """Their names."""
    states: tuple[HostState, ...]
    """Where each stands."""
    gpus: tuple[int, ...]
    """How many it has."""
    empty: tuple[int, ...]
    """GPUs of it with nothing on them and usable."""
    unusable: tuple[int, ...]
    """GPUs of it on which nothing new is placed: cordoned or broken."""
    used: tuple[float, ...]
    """How many whole GPUs the parts that VMs have add up to."""


def by_rack(hosts: Iterable[HostUse]) -> tuple[RackUse, ...]:
    """By the label's value, hosts without one last. ``hosts``: by name; those without GPUs are left out."""
    racks = defaultdict[str | None, list[HostUse]](list)
    for host in hosts:
        if host.gpus:
            racks[host.rack].append(host)
    return tuple(
        RackUse(
            rack,
            tuple(host.host for host in of_rack),
            tuple(host.state for host in of_rack),
            tuple(host.gpus for host in of_rack),
            tuple(host.empty for host in of_rack),
            tuple(host.unusable for host in of_rack),
            tuple(host.used for host in of_rack),
        )
        for rack, of_rack in sorted(racks.items(), key=lambda item: (item[0] is None, item[0] or ""))
    )


_NOTHING: Final = TenantUse(0, 0.0)


def _rounded(gpus: float) -> float:
    """Never -0: what was added and taken away again leaves a trace."""
    return round(gpus, 2) + 0.0


def _used(row: GpuRow) -> float:
    """How much of it VMs of which the reader may know have."""
    taken = sum(cell.size for cell in row.cells if cell.vm not in {None, HIDDEN_VM})
    return taken / row.slots if row.slots else 0.0


def _shares(row: GpuRow) -> dict[str, int]:
    slots = defaultdict[str, int](int)
    for cell in row.cells:
        if cell.tenant is not None:
            slots[cell.tenant] += cell.size
    return slots
