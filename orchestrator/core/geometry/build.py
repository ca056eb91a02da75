# SPDX-License-Identifier: Apache-2.0
"""Geometries from plain tables: what the driver says, or the catalogue where it does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from orchestrator.core.geometry.cut import MIXES, Choice, Cut, CutKind, IllegalLayout, State, Taken
from orchestrator.core.geometry.geometry import Geometry, Options
from orchestrator.core.geometry.mask_cut import MaskCut, Places, intervals
from orchestrator.core.geometry.nested import Inside, NestedCut


class EqualSizeCut(Cut):
    """``count`` slots of ``size_mib`` each; the state is how many are taken."""

    def __init__(self, size_mib: int, count: int) -> None:
        self.name, self.kind, self.slots, self.slot_mib = f"time_sliced:{size_mib}", "time_sliced", count, size_mib
        self.shape = str(size_mib)
        self.shapes = (self.shape,)
        self.empty = 0
        self.key = (self.name, count)

    def size(self, shape: str) -> int:
        """Always one slot."""
        return 1

    def classify(self, taken: Iterable[Taken]) -> State:
        """How many slots are taken."""
        slots = [slot for place in taken for slot in place.slots]
        if len(set(slots)) != len(slots) or any(not 0 <= slot < self.slots for slot in slots):
            raise IllegalLayout(f"slots {sorted(slots)} do not fit {self.slots} slots of {self.name}")
        return len(slots)

    def choices(self, state: State, shape: str) -> tuple[Choice, ...]:
        """One choice while a slot is free."""
        state = cast("int", state)
        if shape != self.shape or state >= self.slots:
            return ()
        return (Choice(state, 1, state + 1),)

    def room(self, state: State, shape: str) -> int:
        """Not counted one by one: a host says how many there are."""
        return self.usable(state, shape)

    def real_start(self, taken: Iterable[Taken], choice: Choice) -> int:
        """The lowest free slot."""
        used = {slot for place in taken for slot in place.slots}
        return next(slot for slot in range(self.slots) if slot not in used)

    def free(self, state: State) -> int:
        """Slots not taken."""
        state = cast("int", state)
        return self.slots - state

    def usable(self, state: State, shape: str) -> int:
        """All free slots for its own size, none for another."""
        return self.free(state) if shape == self.shape else 0


_Found = dict[str, list[tuple[str, str]]]
MIG = "mig"
MIXED = "mixed"


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeRow:
    """One vGPU type as the geometry needs it. Sizes are MiB, placements are units of 1 GB of profile size."""

    name: str
    framebuffer_mib: int
    max_per_gpu: int | None = None
    """Most on a GPU of one size (time-sliced)."""
    placement_ids: tuple[int, ...] = ()
    """Legal starts in mixed-size mode; empty: no mixed sizes."""
    placement_size: int | None = None
    placement_region: int | None = None
    gi_profile: str | None = None
    """MIG-backed: the GPU-instance profile it needs; None: time-sliced."""
    max_per_gi: int | None = None
    functions: int = 0
    """SR-IOV functions that the GPU's time-sliced vGPUs share, one each; 0: they need none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MigRow:
    """One GPU-instance profile. ``starts`` and ``size`` are memory slots of ``total_slots``."""

    name: str
    starts: tuple[int, ...]
    size: int
    total_slots: int
    max_instances: int
    engines: tuple[tuple[str, int], ...] = ()
    """(kind, how many an instance takes); nothing of a kind whose number is unknown."""


def build_geometry(
    model: str,
    memory_mib: int,
    *,
    types: Iterable[TypeRow] = (),
    mig: Iterable[MigRow] = (),
    kinds: frozenset[str] = frozenset({"mig", "time_sliced", "mixed"}),
    for_vms: bool = False,
) -> Geometry:
    """The geometry of a GPU with these vGPU types and GPU-instance profiles.

    ``for_vms``: a GPU instance can only be asked for where a vGPU type takes the whole of it, as VMs get it that way.
    ``kinds``: the cut kinds the operator or the driver allows here. Types without a known maximum (or
    profiles without known starts) are left out: they cannot be placed truthfully.
    """
    cuts: list[Cut] = []
    options: _Found = {}
    rows = tuple(types)
    mig_rows = tuple(row for row in mig if row.starts)
    if "mig" in kinds and mig_rows:
        cuts.append(_mig_cut(memory_mib, mig_rows, rows, options))
    if "time_sliced" in kinds:
        cuts.extend(_equal_cuts(rows, options))
    mixes = next((kind for kind in MIXES if kind in kinds), None)
    if mixes is not None:
        cuts.extend(_mixed_cut(rows, options, mixes))
    backed = {row.gi_profile for row in rows if (row.max_per_gi or 1) == 1}
    unasked = {row.name for row in mig_rows if for_vms and row.name not in backed}
    held = {name: options.pop(name) for name in unasked & options.keys()}
    return Geometry(model, memory_mib, tuple(cuts), _pairs(options), _pairs(held))


def _pairs(pairs_by_name: _Found) -> Options:
    return {name: tuple(pairs) for name, pairs in pairs_by_name.items()}


def _equal_cuts(rows: tuple[TypeRow, ...], options: _Found) -> list[Cut]:
    """A cut per size. Series share a size; where the driver allows series different maxima, the lowest holds."""
    most: dict[int, int] = {}
    for row in rows:
        if row.gi_profile is None and row.max_per_gpu:
            count = min(row.max_per_gpu, row.functions or row.max_per_gpu)
            most[row.framebuffer_mib] = min(count, most.get(row.framebuffer_mib, count))
    cuts = {size: EqualSizeCut(size, count) for size, count in sorted(most.items())}
    for row in rows:
        if row.gi_profile is None and row.max_per_gpu:
            cut = cuts[row.framebuffer_mib]
            options.setdefault(row.name, []).append((cut.name, cut.shape))
    return list(cuts.values())


def _mixed_cut(rows: tuple[TypeRow, ...], options: _Found, kind: CutKind) -> list[Cut]:
    places: dict[str, Places] = {}
    region = 0
    functions = max((row.functions for row in rows), default=0)
    for row in rows:
        if row.placement_ids and row.placement_size and row.placement_region:
            region = max(region, row.placement_region)
            shape = f"{row.placement_size}@{','.join(map(str, row.placement_ids))}"
            places[shape] = intervals(row.placement_ids, row.placement_size, {"function": 1 if functions else 0})
            options.setdefault(row.name, []).append((MIXED, shape))
    return [MaskCut(MIXED, kind, region, 1024, places, {"function": functions})] if places else []


def _mig_cut(memory_mib: int, mig: tuple[MigRow, ...], types: tuple[TypeRow, ...], options: _Found) -> Cut:
    total = max(row.total_slots for row in mig)
    known = {row.name for row in mig}
    backed = [row for row in types if row.gi_profile in known]
    places = {row.name: intervals(row.starts, row.size, dict(row.engines) | _once(row)) for row in mig}
    instances = MaskCut(MIG, "mig", total, memory_mib // total, places, _engines(mig))
    if any((row.max_per_gi or 1) > 1 for row in backed):
        return _nested_cut(memory_mib, instances, backed, options)
    for row in mig:
        options.setdefault(row.name, []).append((MIG, row.name))
    for vgpu in backed:
        options.setdefault(vgpu.name, []).append((MIG, vgpu.gi_profile or ""))
    return instances


def _engines(mig: tuple[MigRow, ...]) -> dict[str, int]:
    """What the GPU has of each: what the instances of one profile take together, of the profile that takes most."""
    most: dict[str, int] = {}
    for row in mig:
        for kind, count in row.engines:
            most[kind] = max(most.get(kind, 0), count * row.max_instances)
        most.update(_once(row))
    return most


def _once(row: MigRow) -> dict[str, int]:
    """A profile with room for several but a maximum of one takes something that the GPU has once, whatever it is."""
    most = len(row.starts) if row.size == 1 else _disjoint(row.starts, row.size)
    return {row.name.partition("+")[2] or "once": 1} if row.max_instances == 1 and most > 1 else {}


def _disjoint(starts: tuple[int, ...], size: int) -> int:
    count, end = 0, -1
    for start in sorted(starts):
        if start >= end:
            count, end = count + 1, start + size
    return count


def _nested_cut(memory_mib: int, instances: MaskCut, backed: list[TypeRow], options: _Found) -> Cut:
    """Slots become GiB of nominal profile size, so that every vGPU size is whole. What takes all of an instance is
    called as the instance."""
    scale = max(1, round(memory_mib / 1024 / instances.slots))
    inside: dict[str, Inside] = {}
    for name, places in instances.places.items():
        inside[name] = Inside(name, places.size * scale, 1)
        options.setdefault(name, []).append((MIG, name))
    for vgpu in backed:
        profile, count = vgpu.gi_profile or "", vgpu.max_per_gi or 1
        shape = f"{profile}/{vgpu.framebuffer_mib}" if count > 1 else profile
        if count > 1:
            inside[shape] = Inside(profile, inside[profile].size // count, count)
        options.setdefault(vgpu.name, []).append((MIG, shape))
    return NestedCut(instances, scale, inside)
