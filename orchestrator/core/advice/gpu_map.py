# SPDX-License-Identifier: Apache-2.0
"""Every GPU as its slots: the data behind ``gpu map``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.placement.views import GpuView, HostView, Occupied

HIDDEN_VM = "(not yours)"
"""In the place of VMs that the reader may not know."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of slots: one VM's place, or free slots between places when ``vm`` is None."""

    start: int
    """First slot."""
    size: int
    """In slots."""
    vm: str | None = None
    """Name of the VM; ``(not yours)`` for what a tenant may not know, free slots too."""
    tenant: str | None = None
    """Whose it is."""
    profile: str | None = None
    """Offering, vGPU type, MIG profile or gpu:N."""

    @property
    def label(self) -> str:
        """``tenant/vm``, empty for free slots."""
        if self.vm is None:
            return ""
        return f"{self.tenant}/{self.vm}" if self.tenant else self.vm


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU. ``slots`` is 0 while it is empty: it may still be cut in any way. ``cells`` cover all slots."""

    host: str | None
    """None: the reader may not know it."""
    gpu: str
    """PCI address; for a tenant a number."""
    model: str
    """As NVIDIA calls it."""
    numa: int | None
    """NUMA node of the GPU."""
    cut: str | None
    """How the GPU is cut; None: nothing is claimed on it."""
    slots: int
    """Slots of the GPU."""
    free: int | None
    """None: the reader may not know it."""
    cells: tuple[Cell, ...]
    """Runs of slots from the first to the last."""
    unusable: str | None = None
    """Why nothing is placed on it; None: it is usable."""
    rack: str | None = None
    """Label ``rack`` of its host; None: it has none, or the reader may not know it."""
    fabric_partition: int | None = None
    """That the GPUs of its VM are, joined by NVSwitch; None: they are none, or the reader may not know it."""


GpuUse = Literal["empty", "partly", "full", "unusable"]
"""How much of a GPU is claimed; ``unusable``: nothing new is placed on it, whatever is."""


@dataclass(frozen=True, slots=True)
class GpuFilter:
    """All that is given must hold."""

    host: str | None = None
    """Name of the host."""
    models: Collection[str] | None = None
    """Names of models, as the GPUs have them."""
    use: GpuUse | None = None
    rack: str | None = None
    """Label ``rack`` of its host."""

    @property
    def picks_hosts(self) -> bool:
        """Whether it says which hosts."""
        return self.host is not None or self.rack is not None

    def picks(self, row: GpuRow) -> bool:
        """Whether the GPU is to be on the map."""
        return (
            self.picks_host(row.host, row.rack)
            and self.picks_model(row.model)
            and (self.use is None or use_of(row) == self.use)
        )

    def picks_host(self, host: str | None, rack: str | None) -> bool:
        """Whether GPUs of the host are to be on the map, as far as that decides."""
        return self.host in {None, host} and self.rack in {None, rack}

    def picks_model(self, model: str) -> bool:
        """Whether GPUs of the model are to be on the map, as far as that decides."""
        return self.models is None or model in self.models


EVERY_GPU: Final = GpuFilter()


def use_of(row: GpuRow) -> GpuUse:
    """Of a tenant's GPUs, as far as it may know."""
    if row.unusable is not None:
        return "unusable"
    free = sum(cell.size for cell in row.cells if cell.vm is None)
    if row.slots in {0, free}:
        return "empty"
    return "partly" if free else "full"


def gpu_map(
    hosts: Iterable[HostView], *, names: Mapping[str, str] | None = None, partitions: Mapping[str, int] | None = None
) -> tuple[GpuRow, ...]:
    """A row per GPU, in the order given.

    :param names: VM id → name to show; ids without an entry are shown themselves
    :param partitions: VM id → fabric partition that its GPUs are
    """
    return tuple(_row(host, gpu, names or {}, partitions or {}) for host in hosts for gpu in host.gpus)


def own_gpus(rows: Iterable[GpuRow], tenants: Collection[str]) -> tuple[GpuRow, ...]:
    """The GPUs that VMs of ``tenants`` are on, as their people may see them: counted instead of named.

    Their own VMs come first and the other slots are one cell, whoever has them: where a VM lies would tell what lies
    before it. So would the order of the GPUs; it is that of the VMs' names.
    """
    own_rows = []
    for row in rows:
        own = [cell for cell in row.cells if cell.vm is not None and cell.tenant in tenants]
        if own:
            own_rows.append((sorted(own, key=lambda cell: (cell.label, cell.size)), row))
    own_rows.sort(key=lambda one: [cell.label for cell in one[0]])
    return tuple(_own_row(row, own, number) for number, (own, row) in enumerate(own_rows, start=1))


def _own_row(row: GpuRow, own: Sequence[Cell], number: int) -> GpuRow:
    cells: list[Cell] = []
    at = 0
    for cell in own:
        cells.append(replace(cell, start=at))
        at += cell.size
    if at < row.slots:
        cells.append(Cell(at, row.slots - at, HIDDEN_VM))
    return replace(
        row, host=None, gpu=f"GPU {number}", numa=None, free=None, cells=tuple(cells), unusable=None, rack=None,
        fabric_partition=None,
    )  # fmt: skip


def _row(host: HostView, gpu: GpuView, names: Mapping[str, str], partitions: Mapping[str, int]) -> GpuRow:
    slots = _slots(gpu)
    cells: list[Cell] = []
    at = 0
    for item in sorted(gpu.occupied, key=lambda o: o.start):
        if item.start > at:
            cells.append(Cell(at, item.start - at))
        cells.append(_cell(item, names))
        at = item.start + item.size
    if at < slots:
        cells.append(Cell(at, slots - at))
    unusable = None
    if host.cordoned or not gpu.usable:
        unusable = host.reason or "the host is cordoned" if host.cordoned else gpu.reason_unusable or "no reason given"
    free = sum(cell.size for cell in cells if cell.vm is None)
    shown = short_gpu_id(host.name, gpu.gpu_id)
    partition = next((partitions[item.vm_id] for item in gpu.occupied if item.vm_id in partitions), None)
    return GpuRow(
        host.name, shown, gpu.geometry.model, gpu.numa, gpu.cut, slots, free, tuple(cells), unusable, host.rack,
        partition,
    )  # fmt: skip


def short_gpu_id(host: str, gpu_id: str) -> str:
    """The GPU's name without that of its host, which the reader has just seen."""
    return gpu_id.removeprefix(f"{host} ")


def _slots(gpu: GpuView) -> int:
    """Slots of the present cut; of what is held where the driver no longer knows the cut."""
    end = max((item.start + item.size for item in gpu.occupied), default=0)
    cut = gpu.geometry.cut(gpu.cut) if gpu.cut else None
    return max(end, cut.slots) if cut is not None else end


def _cell(item: Occupied, names: Mapping[str, str]) -> Cell:
    return Cell(item.start, item.size, names.get(item.vm_id, item.vm_id), item.tenant or None, item.profile)
