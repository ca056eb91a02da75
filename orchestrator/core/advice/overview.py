# SPDX-License-Identifier: Apache-2.0
"""How much of the GPUs is used, by model and by tenant: the data behind ``status``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from orchestrator.core.advice.gpu_map import HIDDEN_VM, GpuRow


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


def use_by_model(rows: Iterable[GpuRow]) -> tuple[ModelUse, ...]:
    """By name of the model; each row is one GPU."""
    of_model = defaultdict[str, list[GpuRow]](list)
    for row in rows:
        of_model[row.model].append(row)
    return tuple(_model_use(model, of_model[model]) for model in sorted(of_model))


def _model_use(model: str, rows: Collection[GpuRow]) -> ModelUse:
    whole = all(row.free is not None for row in rows)
    empty = sum(not _taken(row) and row.unusable is None for row in rows)
    unusable = sum(row.unusable is not None for row in rows)
    used = round(sum(_taken(row) / row.slots for row in rows if row.slots), 2)
    return ModelUse(model, len(rows), empty if whole else None, unusable if whole else None, used)


def _taken(row: GpuRow) -> int:
    """Slots that VMs of which the reader may know have."""
    return sum(cell.size for cell in row.cells if cell.vm not in {None, HIDDEN_VM})


def use_by_tenant(rows: Iterable[GpuRow]) -> dict[str, TenantUse]:
    """Of each tenant with a VM on some GPU; what is not ours is nobody's."""
    shares = defaultdict[str, list[float]](list)
    for row in rows:
        on_gpu = defaultdict[str, int](int)
        for cell in row.cells:
            if cell.tenant is not None:
                on_gpu[cell.tenant] += cell.size
        for tenant, slots in on_gpu.items():
            shares[tenant].append(slots / row.slots)
    return {tenant: TenantUse(len(parts), round(sum(parts), 2)) for tenant, parts in shares.items()}
