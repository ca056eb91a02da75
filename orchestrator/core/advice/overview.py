# SPDX-License-Identifier: Apache-2.0
"""How much of the GPUs is used, by model and by tenant: the data behind ``status``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.advice.gpu_map import HIDDEN_VM, GpuFilter, GpuRow, GpuUse, use_of


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


@dataclass(frozen=True, slots=True)
class _OfModel:
    gpus: int = 0
    used: float = 0.0
    is_whole: bool = True
    uses: Counter[GpuUse] = field(default_factory=Counter)

    def plus(self, other: _OfModel) -> _OfModel:
        return _OfModel(
            self.gpus + other.gpus,
            self.used + other.used,
            self.is_whole and other.is_whole,
            self.uses + other.uses,
        )


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
                {row.model: _OfModel(1, _used(row), row.free is not None, Counter([use_of(row)]))},
                {tenant: TenantUse(1, slots / row.slots) for tenant, slots in _shares(row).items()},
            )
            for row in rows
        )

    @classmethod
    def added(cls, parts: Iterable[FleetUse]) -> FleetUse:
        """Of all of them together."""
        models: dict[str, _OfModel] = {}
        shares: dict[str, TenantUse] = {}
        for part in parts:
            for model, counts in part.models.items():
                models[model] = models[model].plus(counts) if model in models else counts
            for tenant, share in part.shares.items():
                before = shares.get(tenant, _NOTHING)
                shares[tenant] = TenantUse(before.gpus + share.gpus, before.used + share.used)
        return cls(models, shares)

    def by_model(self) -> tuple[ModelUse, ...]:
        """By name of the model."""
        return tuple(
            ModelUse(
                model,
                counts.gpus,
                counts.uses["empty"] if counts.is_whole else None,
                counts.uses["unusable"] if counts.is_whole else None,
                round(counts.used, 2),
            )
            for model, counts in sorted(self.models.items())
        )

    def by_tenant(self) -> dict[str, TenantUse]:
        """Of each tenant with a VM on some GPU."""
        return {tenant: TenantUse(share.gpus, round(share.used, 2)) for tenant, share in self.shares.items()}

    def how_many(self, only: GpuFilter) -> int:
        """GPUs that it picks, whatever it says of their host."""
        return sum(
            counts.gpus if only.use is None else counts.uses[only.use]
            for model, counts in self.models.items()
            if only.picks_model(model)
        )


_NOTHING: Final = TenantUse(0, 0.0)


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
