# SPDX-License-Identifier: Apache-2.0
"""The hosts and GPUs that the engine knows, indexed so that a claim or release is one small update."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from orchestrator.core.geometry.board import WHOLE, AnySetBoard, fabric_board
from orchestrator.core.geometry.cut import Cut, IllegalLayout, State, Taken, bits, cut_words
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.geometry.mask_cut import MaskCut
from orchestrator.core.placement.host_classes import HostClasses
from orchestrator.core.placement.index_set import IndexSet
from orchestrator.core.placement.rules.rule import Amounts, Fact, Resource
from orchestrator.core.placement.state_table import EMPTY, StateTable
from orchestrator.core.placement.views import GpuView, HostView, Occupied

Members = dict[int, IndexSet]
"""Host class → GPUs (or hosts) of one state."""


@dataclass(slots=True, eq=False)
class Gpu:
    """One GPU. ``cut`` is a position in its table's cuts, -1 while empty; ``whole`` when given out as a whole."""

    number: int
    host: FleetHost
    position: int
    view: GpuView
    table: StateTable
    cut: int = -1
    state: int = EMPTY
    whole: bool = False
    usable: bool = True
    reason: str | None = None
    held: list[tuple[Taken, Occupied]] = field(default_factory=list)
    bucket: int | None = None
    """Class under which it is indexed; None: not indexed."""

    @property
    def gpu_id(self) -> str:
        return self.view.gpu_id

    @property
    def numa(self) -> int | None:
        return self.view.numa

    @property
    def geometry(self) -> Geometry:
        return self.table.geometry

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.view.facts

    @property
    def cut_name(self) -> str | None:
        """As stored with claims."""
        if self.whole:
            return "whole"
        return self.table.cuts[self.cut].name if self.cut >= 0 else None


@dataclass(slots=True, eq=False)
class FleetHost:
    """One host: what is free, and which of its GPUs are busy (bits of ``busy``) or never to be used (``blocked``)."""

    number: int
    view: HostView
    board: int
    vcpus: int
    memory_mib: int
    free: dict[Resource, int]
    """What else VMs spend."""
    gpus: list[Gpu] = field(default_factory=list)
    busy: int = 0
    blocked: int = 0
    closed: int = 0
    """Those that may not be given out as a whole, the blocked ones among them."""
    levels: tuple[int, int] | None = None
    group: Group | None = None
    bucket: int | None = None
    vms: set[str] = field(default_factory=set)

    @property
    def most_vcpus(self) -> int:
        """How many one more VM may have: what is free, and never more than the host has."""
        return self.vcpus if self.view.vcpus is None else min(self.vcpus, self.view.vcpus)

    def spend(self, amounts: Amounts, sign: int) -> None:
        """Take so much (1), or give it back (-1). What is not counted here is left out."""
        for resource, amount in amounts:
            if resource in self.free:
                self.free[resource] -= sign * amount

    @property
    def used(self) -> bool:
        """Whether some VM has a GPU of it."""
        return self.busy != self.blocked


@dataclass(slots=True, eq=False)
class Board:
    """The whole-GPU geometry that hosts share, with the table of the GPU at each position."""

    number: int
    cut: Cut
    tables: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Group:
    """Hosts of one board with the same GPUs busy."""

    number: int
    board: Board
    busy: int
    closed: int
    used: bool
    members: Members = field(default_factory=dict)


class Fleet:
    """Hosts, GPUs, states and groups. New tables, states and groups are announced to ``on_new``."""

    def __init__(self) -> None:
        self.hosts: list[FleetHost] = []
        self.gpus: list[Gpu] = []
        self.tables: list[StateTable] = []
        self.boards: list[Board] = []
        self.size = 0
        """About how many bytes all tables and groups take that were ever met: they are never given up."""
        self.active = 0
        """GPUs that hold something."""
        self.usable: dict[int, int] = {}
        """By table: GPUs that may be placed on."""
        self.groups: list[Group] = []
        self.classes = HostClasses()
        self.members: list[list[Members]] = []
        """By table, by state: the GPUs in it."""
        self.on_state: Callable[[StateTable, int], None] = _nothing
        self.on_group: Callable[[Group], None] = _nothing
        self._table_keys: dict[tuple[Hashable, ...], StateTable] = {}
        self._board_keys: dict[tuple[Hashable, ...], Board] = {}
        self._group_keys: dict[tuple[int, int, int, bool], Group] = {}
        self._by_name: dict[str, FleetHost] = {}
        self.gpu_by_id: dict[tuple[str, str], Gpu] = {}

    def add(self, view: HostView) -> FleetHost:
        """Take in a host with what is on it. A GPU whose claims break its table's rules is set aside as unusable."""
        host = self._loaded(view, len(self.hosts), range(len(self.gpus), len(self.gpus) + len(view.gpus)))
        self.hosts.append(host)
        self.gpus += host.gpus
        self.reindex(host)
        return host

    def replace(self, old: FleetHost, view: HostView) -> FleetHost:
        """The same with another picture of a host that is there: it keeps its number, and its GPUs keep theirs."""
        self._take_out(old)
        host = self._loaded(view, old.number, [gpu.number for gpu in old.gpus])
        self.hosts[host.number] = host
        for gpu in host.gpus:
            self.gpus[gpu.number] = gpu
        self.reindex(host)
        return host

    def remove(self, host: FleetHost) -> None:
        """Let go of it. Hosts and GPUs have the numbers from 0 on, so the last ones get those that are free now."""
        self._take_out(host)
        for gpu in sorted(host.gpus, key=lambda gpu: -gpu.number):
            last = self.gpus.pop()
            if last is not gpu:
                self.unindex_gpu(last, last.state)
                last.number = gpu.number
                self.gpus[gpu.number] = last
                self.reindex_gpu(last)
        last_host = self.hosts.pop()
        if last_host is not host:
            self._unindex_host(last_host)
            last_host.number = host.number
            self.hosts[host.number] = last_host
            self._reindex_host(last_host)

    def _take_out(self, host: FleetHost) -> None:
        """Of everything that is counted or indexed."""
        for gpu in host.gpus:
            self.unindex_gpu(gpu, gpu.state)
            self.gpu_by_id.pop((host.view.host_id, gpu.view.gpu_id), None)
            if gpu.usable and not host.view.cordoned:
                self.usable[gpu.table.number] -= 1
        self._set_busy(host, host.blocked)
        self._unindex_host(host)
        self.classes.recount(host.levels, None)
        host.levels = None
        for name in (host.view.host_id, host.view.name):
            if self._by_name.get(name) is host:
                del self._by_name[name]

    def _loaded(self, view: HostView, number: int, gpu_numbers: Sequence[int]) -> FleetHost:
        tables = tuple(self._table(gpu) for gpu in view.gpus)
        board = self._board(view, tables)
        host = FleetHost(
            number, view, board.number, view.free_vcpus, view.free_memory_mib, dict(view.free), vms=set(view.vms)
        )
        self._by_name[view.host_id] = host
        self._by_name.setdefault(view.name, host)
        for position, (gpu_view, table) in enumerate(zip(view.gpus, tables, strict=True)):
            gpu = Gpu(gpu_numbers[position], host, position, gpu_view, table)
            host.gpus.append(gpu)
            self.gpu_by_id[view.host_id, gpu_view.gpu_id] = gpu
            self._load(gpu)
        return host

    def host(self, name: str) -> FleetHost | None:
        """By id, or by name."""
        return self._by_name.get(name)

    def _table(self, gpu: GpuView) -> StateTable:
        key = gpu.geometry.key
        table = self._table_keys.get(key)
        if table is None:
            table = self._table_keys[key] = StateTable(gpu.geometry, len(self.tables))
            self.tables.append(table)
            self.members.append([{}])
            self.size += 4096 + 2048 * len(gpu.geometry.options)
        return table

    def _board(self, view: HostView, tables: tuple[StateTable, ...]) -> Board:
        gpu_mib = max((table.total_mib for table in tables), default=0)
        alone = sum(1 << i for i, gpu in enumerate(view.gpus) if gpu.reason_alone is not None)
        modules = [-1 - i if gpu.module_id is None else gpu.module_id for i, gpu in enumerate(view.gpus)]
        cut: Cut
        if not view.whole_gpus:
            cut = MaskCut(WHOLE, "whole", len(modules), gpu_mib, {})
        elif view.fabric_partitions:  # one whose module id is not known is in none of them
            cut = fabric_board(view.fabric_partitions, modules, gpu_mib, alone)
        else:
            cut = AnySetBoard([gpu.numa for gpu in view.gpus], gpu_mib, alone)
        numbers = tuple(table.number for table in tables)
        key = (cut.key, numbers)
        board = self._board_keys.get(key)
        if board is None:
            board = self._board_keys[key] = Board(len(self.boards), cut, numbers)
            self.boards.append(board)
        return board

    def _load(self, gpu: Gpu) -> None:
        view = gpu.view
        gpu.usable, gpu.reason = view.usable, view.reason_unusable
        gpu.host.vms.update(item.vm_id for item in view.occupied)
        index = None if view.cut in {None, "whole"} else gpu.table.cut_index(view.cut or "")
        for item in view.occupied:
            shape = item.profile
            if index is not None:
                cut = gpu.table.cuts[index].name
                shape = gpu.table.geometry.shape_in(item.profile, cut) or item.profile
            gpu.held.append((Taken(shape, item.start, item.size), item))
        if view.occupied and view.cut == "whole":
            gpu.whole = True
        elif view.occupied and index is None:
            held = cut_words(view.cut)
            gpu.usable, gpu.reason = False, f"holds claims under {held}, which its driver does not offer now"
        elif index is not None:
            self._load_state(gpu, index)
        if gpu.usable and not gpu.host.view.cordoned:
            self.usable[gpu.table.number] = self.usable.get(gpu.table.number, 0) + 1
        if not gpu.usable:
            gpu.host.blocked |= 1 << gpu.position
            gpu.host.busy |= 1 << gpu.position
        if not gpu.usable or view.reason_not_whole is not None:
            gpu.host.closed |= 1 << gpu.position

    def _load_state(self, gpu: Gpu, index: int) -> None:
        try:
            self.set_state(gpu, index)
        except IllegalLayout as problem:
            gpu.usable, gpu.reason = False, str(problem)

    def set_state(self, gpu: Gpu, cut: int) -> None:
        """Find the GPU's state again from what it holds, under the cut of that position.

        :raises IllegalLayout: what it holds is not legal there
        """
        here = gpu.table.cuts[cut]
        state = here.classify(taken for taken, _ in gpu.held)
        gpu.state = self.number_of(gpu.table, cut, state)
        gpu.cut = cut if gpu.state != EMPTY else -1

    def number_of(self, table: StateTable, cut: int, state: State) -> int:
        """The state's number; a state met for the first time is announced."""
        number, new = table.number_of(cut, state)
        if new:
            self.members[table.number].append({})
            self.on_state(table, number)
        return number

    def reindex(self, host: FleetHost) -> None:
        """Put a host and its GPUs where they belong after a change of anything."""
        for gpu in host.gpus:
            bit = 1 << gpu.position
            busy = bool(gpu.held) or not gpu.usable
            self._set_busy(host, host.busy | bit if busy else host.busy & ~bit)
        self._reindex_host(host)
        for gpu in host.gpus:
            self.reindex_gpu(gpu)

    def _set_busy(self, host: FleetHost, busy: int) -> None:
        self.active += bits(busy & ~host.blocked) - bits(host.busy & ~host.blocked)
        host.busy = busy

    def touch(self, host: FleetHost, gpu: Gpu, old_state: int) -> None:
        """The cheap form of ``reindex`` for one GPU whose state was ``old_state``."""
        bit = 1 << gpu.position
        busy = host.busy | bit if gpu.held or not gpu.usable else host.busy & ~bit
        if gpu.bucket is not None:  # asked here and below: most were taken out before, and this path is the hot one
            self.unindex_gpu(gpu, old_state)
        levels = self.classes.levels(host.most_vcpus, host.memory_mib)
        if levels != host.levels:
            self._set_busy(host, busy)
            self._reindex_host(host)
            for other in host.gpus:
                self.reindex_gpu(other)
            return
        if busy != host.busy:
            self._set_busy(host, busy)
            self._reindex_host(host)
        self.reindex_gpu(gpu)

    def _unindex_host(self, host: FleetHost) -> None:
        if host.group is not None and host.bucket is not None:
            _drop(host.group.members, host.bucket, host.number)
        host.group, host.bucket = None, None

    def _reindex_host(self, host: FleetHost) -> None:
        self._unindex_host(host)
        old = host.levels
        host.levels = None if host.view.cordoned else self.classes.levels(host.most_vcpus, host.memory_mib)
        self.classes.recount(old, host.levels)
        if host.levels is None:
            return
        host.group = self._group(host)
        host.bucket = self.classes.class_of(host.levels)
        host.group.members.setdefault(host.bucket, IndexSet()).add(host.number)

    def _group(self, host: FleetHost) -> Group:
        key = (host.board, host.busy, host.closed, host.used)
        group = self._group_keys.get(key)
        if group is None:
            group = Group(len(self.groups), self.boards[host.board], host.busy, host.closed, host.used)
            self._group_keys[key] = group
            self.groups.append(group)
            self.size += 8192
            self.on_group(group)
        return group

    def unindex_gpu(self, gpu: Gpu, state: int) -> None:
        """Take a GPU out of the members of ``state``."""
        if gpu.bucket is not None:
            _drop(self.members[gpu.table.number][state], gpu.bucket, gpu.number)
            gpu.bucket = None

    def reindex_gpu(self, gpu: Gpu) -> None:
        """Index a GPU that is partly taken; empty ones are found through their host."""
        if gpu.bucket is not None:
            self.unindex_gpu(gpu, gpu.state)
        levels = gpu.host.levels
        if levels is not None and gpu.state != EMPTY and gpu.usable:
            gpu.bucket = self.classes.class_of(levels)
            self.members[gpu.table.number][gpu.state].setdefault(gpu.bucket, IndexSet()).add(gpu.number)

    def learn_amounts(self, vcpus: int, memory_mib: int) -> None:
        """Make sure that hosts are told apart by whether they have this much."""
        if self.classes.learn(vcpus, memory_mib):
            for host in self.hosts:
                host.levels = None
                self.reindex(host)


def _drop(members: Members, bucket: int, item: int) -> None:
    bucket_members = members.get(bucket)
    if bucket_members is not None:
        bucket_members.discard(item)
        if not bucket_members:
            del members[bucket]


def _nothing(*_: object) -> None:
    return None
