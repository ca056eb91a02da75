# SPDX-License-Identifier: Apache-2.0
"""Every GPU as its slots: the data behind ``gpu map``, and how it is drawn in plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters, digits

from orchestrator.core.geometry.cut import cut_words
from orchestrator.core.placement.views import GpuView, HostView, Occupied

_KEYS = ascii_letters + digits
_MORE = "#"
_LEAST_WIDTH = 20
_HIDDEN = "(not yours)"


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of slots: one VM's place, or free slots between places when ``vm`` is None."""

    start: int
    size: int
    vm: str | None = None
    """Name of the VM; ``(not yours)`` for what a tenant may not know, free slots too."""
    tenant: str | None = None
    profile: str | None = None

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
    model: str
    numa: int | None
    cut: str | None
    slots: int
    free: int | None
    """None: the reader may not know it."""
    cells: tuple[Cell, ...]
    unusable: str | None = None
    """Why nothing is placed on it; None: it is usable."""


def gpu_map(hosts: Iterable[HostView], *, names: Mapping[str, str] | None = None) -> tuple[GpuRow, ...]:
    """A row per GPU, in the order given.

    :param names: VM id → name to show; ids without an entry are shown themselves
    """
    return tuple(_row(host, gpu, names or {}) for host in hosts for gpu in host.gpus)


def own_gpus(rows: Iterable[GpuRow], tenants: Collection[str]) -> tuple[GpuRow, ...]:
    """The GPUs that VMs of ``tenants`` are on, as their people may see them: counted instead of named.

    Their own VMs come first and the other slots are one cell, whoever has them: where a VM lies would tell what lies
    before it. So would the order of the GPUs; it is that of the VMs' names.
    """
    found = []
    for row in rows:
        own = [cell for cell in row.cells if cell.vm is not None and cell.tenant in tenants]
        if own:
            found.append((sorted(own, key=lambda cell: (cell.label, cell.size)), row))
    found.sort(key=lambda one: [cell.label for cell in one[0]])
    return tuple(_own_row(row, own, number) for number, (own, row) in enumerate(found, start=1))


def _own_row(row: GpuRow, own: Sequence[Cell], number: int) -> GpuRow:
    cells: list[Cell] = []
    at = 0
    for cell in own:
        cells.append(replace(cell, start=at))
        at += cell.size
    if at < row.slots:
        cells.append(Cell(at, row.slots - at, _HIDDEN))
    return replace(row, host=None, gpu=f"GPU {number}", numa=None, free=None, cells=tuple(cells), unusable=None)


def _row(host: HostView, gpu: GpuView, names: Mapping[str, str]) -> GpuRow:
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
    return GpuRow(host.name, shown, gpu.geometry.model, gpu.numa, gpu.cut, slots, free, tuple(cells), unusable)


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


def render_gpu_map(rows: Sequence[GpuRow], width: int = 80) -> str:
    """The map as text, no line longer than ``width`` columns (at least 20)."""
    width = max(width, _LEAST_WIDTH)
    lines: list[str] = []
    host = None
    for row in rows:
        if row.host is not None and row.host != host:
            lines += [""] if lines else []
            lines.append(_clip(f"host {row.host}", width))
            host = row.host
        lines += [_clip(line, width) for line in _gpu_lines(row, width)]
    if not lines:
        return "no GPUs\n"
    lines += ["", _clip("letter = VM, . = free slot, ~ = empty GPU, x = not used", width)]
    return "\n".join(lines) + "\n"


def _gpu_lines(row: GpuRow, width: int) -> list[str]:
    node = "" if row.numa is None else f"  NUMA {row.numa}"
    state = _state(row)
    title = f"  {row.gpu}  {row.model}{node}"
    lines = [f"{title}  {state}"] if len(title) + 2 + len(state) <= width else [title, f"    {state}"]
    if row.unusable is not None:
        lines.append(f"    not used: {row.unusable}")
    keyed = _keyed(row.cells)
    lines.append(f"    [{_bar(row, keyed, width - 6)}]")
    lines += [f"    {key} {_described(cell)}" for key, cell in keyed if cell.vm is not None]
    return lines


def _state(row: GpuRow) -> str:
    if not row.slots:
        return "empty"
    cut = cut_words(row.cut)
    return f"{cut}, {row.slots} slots" if row.free is None else f"{cut}, {row.free} of {row.slots} slots free"


def _keyed(cells: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Cells with the letter that stands for them; a VM with several places on the GPU keeps its letter."""
    letters: dict[str, str] = {}
    found: list[tuple[str, Cell]] = []
    for cell in cells:
        found.append((_key(cell, letters), cell))
    return found


def _key(cell: Cell, letters: dict[str, str]) -> str:
    if cell.vm is None:
        return "."
    if cell.vm == _HIDDEN:
        return "-"
    return letters.setdefault(cell.label, _KEYS[len(letters)] if len(letters) < len(_KEYS) else _MORE)


def _described(cell: Cell) -> str:
    return f"{cell.label}  {cell.profile + '  ' if cell.profile else ''}{slots_text(cell.start, cell.size)}"


def slots_text(start: int, size: int) -> str:
    """``slot 3`` or ``slots 0-3``."""
    return f"slot {start}" if size == 1 else f"slots {start}-{start + size - 1}"


def _bar(row: GpuRow, keyed: Sequence[tuple[str, Cell]], room: int) -> str:
    """The slots in ``room`` columns at most, all slots equally wide where they fit, else shrunk in proportion."""
    if not row.slots:
        return ("x" if row.unusable is not None else "~") * room
    each = room // row.slots
    inner = each * row.slots if each else room
    return "".join(_drawn(key, cell, row.slots, inner) for key, cell in keyed)


def _drawn(key: str, cell: Cell, slots: int, inner: int) -> str:
    begin, end = cell.start * inner // slots, (cell.start + cell.size) * inner // slots
    columns = end - begin
    if cell.vm is None:
        return "".join("|" if _ends_slot(at, slots, inner) else "." for at in range(begin, end))
    text = f" {cell.label} "
    if columns > len(text):
        return text.center(columns - 1, key) + "|"
    return key * columns if columns <= 1 else key * (columns - 1) + "|"


def _ends_slot(at: int, slots: int, inner: int) -> bool:
    """Whether column ``at`` is the last of a slot that is at least two columns wide."""
    return inner >= 2 * slots and (at + 1) % (inner // slots) == 0


def _clip(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + ">"


__all__ = ["Cell", "GpuRow", "gpu_map", "own_gpus", "render_gpu_map", "short_gpu_id", "slots_text"]
