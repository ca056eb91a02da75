# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host, as its kernel numbers them, and the NUMA nodes and cores that they belong to; on which of them a VM
runs and where its memory is.

Whole cores are given out: hyperthreads of one core work against each other, and what one does the other may observe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.units import show_size

MAX_CPU: Final = 8191
"""NR_CPUS of the largest kernels that distributions build, less one."""

Cores = tuple[tuple[int, ...], ...]
"""CPUs by core: hyperthreads of one core together."""


@dataclass(frozen=True, kw_only=True)
class HugePages:
    """Of one size on one NUMA node."""

    size_kib: int
    """Of each, in KiB."""
    total: int
    """That the node has."""
    free: int
    """Those of them that nobody uses."""
    mounted: bool = False
    """Whether QEMU can have pages of that size: hugetlbfs is mounted for it. An agent that does not tell says no."""

    @property
    def mib(self) -> int:
        return self.total * self.size_kib // 1024


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """A NUMA node: CPUs that are online and the memory that is nearest to them."""

    id: int
    """Stays the same for ever."""
    cores: Cores
    """That these CPUs belong to; a core of two threads is two CPUs."""
    memory_mib: int | None
    """Huge pages among it; None: the kernel does not tell."""
    hugepages: tuple[HugePages, ...] = ()
    """By size; those alone that the host has."""

    @property
    def ordinary_mib(self) -> int | None:
        """Memory that is not kept for huge pages."""
        huge = sum(pages.mib for pages in self.hugepages)
        return None if self.memory_mib is None else max(0, self.memory_mib - huge)

    @cached_property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted(cpu for core in self.cores for cpu in core))


def only_node(nodes: Iterable[NumaNode]) -> int | None:
    """The node that all CPUs are of, others being of memory alone: a machine with one such often says of no device that
    it is near it. None: there are several, or none is known."""
    with_cpus = [node.id for node in nodes if node.cores]
    return with_cpus[0] if len(with_cpus) == 1 else None


def parse_cpus(text: str) -> tuple[int, ...]:
    """``0-3,8`` in order. Empty text: none; blanks alone are refused, they are of a value that somebody forgot.

    :raises InvalidInput: ``host.cpus_invalid``
    """
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.strip().partition("-")
        numbers = (first, last if dash else first)
        if not all(number.isascii() and number.isdigit() and len(number) <= len(str(MAX_CPU)) for number in numbers):
            raise _no_cpus(text)
        low, high = (int(number) for number in numbers)
        if not low <= high <= MAX_CPU:
            raise _no_cpus(text)
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def _no_cpus(text: str) -> InvalidInput:
    return InvalidInput("host.cpus_invalid", f"{text[:60]!a} names no CPUs", hint="write them as 4-15,20-31")


def cpus_text(cpus: Iterable[int]) -> str:
    """``0-3,8``, as the kernel and libvirt write them."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in _runs(cpus))


def _runs(cpus: Iterable[int]) -> Iterator[tuple[int, int]]:
    run: tuple[int, int] | None = None
    for cpu in sorted(set(cpus)):
        if run is not None and cpu == run[1] + 1:
            run = (run[0], cpu)
            continue
        if run is not None:
            yield run
        run = (cpu, cpu)
    if run is not None:
        yield run


MemoryPolicy = Literal["any", "preferred", "strict"]
"""Whether a VM's memory comes from some NUMA nodes: nobody says, if they have it, or from nowhere else."""


@dataclass(frozen=True, kw_only=True)
class CpuPlace:
    """Of a VM that has CPUs alone, insists on a NUMA node or is made of huge pages, or is beside such VMs."""

    shared: tuple[int, ...]
    """CPUs that no VM has alone: QEMU's own threads run there, and vCPUs that are not pinned."""
    pinned: tuple[int, ...] = ()
    """For each vCPU the CPU that it has alone; none: they float."""
    threads: int = 1
    """vCPUs that the guest sees as one core, as their CPUs are one core of the host."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes that ``memory`` is about."""
    memory: MemoryPolicy = "any"
    page_kib: int = 0
    """Size of the huge pages that its memory is made of; 0: ordinary ones."""
    page_mib: tuple[int, ...] = ()
    """MiB of them counted on each of ``nodes``."""

    @property
    def affinity(self) -> tuple[str, ...]:
        """As the host shows it: the CPU of each vCPU, or once for all those that they float over."""
        return tuple(str(cpu) for cpu in self.pinned) or (floating(self.shared),)

    @property
    def memory_words(self) -> str:
        """As the host shows it: what the memory is made of and where it is."""
        return memory_words(self.page_kib, self.memory, cpus_text(self.nodes))


def memory_words(page_kib: int, policy: str, nodes: str) -> str:
    """``huge pages of 2MiB, strict on node 0``; ``any``: ordinary pages from anywhere."""
    where = "" if policy == "any" else f"{policy} on node {nodes}"
    pages = f"huge pages of {show_size(page_kib * 1024)}" if page_kib else ""
    return ", ".join(filter(None, (pages, where))) or "any"


def floating(cpus: Iterable[int]) -> str:
    """The affinity of vCPUs that float over these."""
    return f"any of {cpus_text(cpus)}"


def own_cpus(affinity: Iterable[str]) -> frozenset[int]:
    """Those that vCPUs of such an affinity are pinned to, one each."""
    return frozenset(int(cpu) for cpu in affinity if cpu.isascii() and cpu.isdigit())


@dataclass(frozen=True)
class CpuChoice:
    """CPUs for a VM that has its own."""

    claimed: tuple[int, ...]
    """Whole cores."""
    pinned: tuple[int, ...]
    """One for each vCPU; some of ``claimed`` stay idle where the vCPUs do not fill the last core."""
    threads: int
    nodes: tuple[int, ...]


def free_cores(nodes: Iterable[NumaNode], pinnable: Collection[int], taken: Collection[int]) -> dict[int, Cores]:
    """By NUMA node, those of which every CPU may be pinned and none is taken."""
    may, gone = set(pinnable), set(taken)
    return {
        node.id: tuple(core for core in node.cores if may.issuperset(core) and gone.isdisjoint(core)) for node in nodes
    }


def whole_cores(nodes: Iterable[NumaNode], cpus: Collection[int]) -> tuple[int, ...]:
    """All CPUs of the cores that these are of."""
    wanted = set(cpus)
    return tuple(cpu for node in nodes for core in node.cores if wanted.intersection(core) for cpu in core)


def threads_of(nodes: Iterable[NumaNode]) -> int:
    """The most CPUs that a core has; at least one."""
    return max((len(core) for node in nodes for core in node.cores), default=1)


def rounded(vcpus: int, threads: int) -> int:
    """CPUs of the whole cores that so many vCPUs need."""
    return -(-vcpus // threads) * threads


def shares(free: Mapping[int, int], near: Iterable[int], need: int, *, strict: bool) -> dict[int, int] | None:
    """How many CPUs of each NUMA node: all of one where one has them, nearest first. None: too few are free.

    ``free``: CPUs by node. ``near``: nodes of the VM's GPUs. ``strict``: of one of these alone."""
    nearest = [node for node in dict.fromkeys(near) if node in free]
    order = nearest if strict else [*nearest, *(node for node in sorted(free) if node not in nearest)]
    for node in order:
        if free[node] >= need:
            return {node: need}
    if strict or sum(free.values()) < need:
        return None
    shares_of: dict[int, int] = {}
    for node in order:
        part = min(free[node], need - sum(shares_of.values()))
        if part > 0:
            shares_of[node] = part
    return shares_of


def choose(cores: Mapping[int, Cores], near: Iterable[int], vcpus: int, *, strict: bool) -> CpuChoice | None:
    """CPUs out of ``cores``, those that are free by NUMA node. None: they are too few."""
    threads = max((len(core) for cores_of_node in cores.values() for core in cores_of_node), default=1)
    free = {node: sum(map(len, cores_of_node)) for node, cores_of_node in cores.items()}
    parts = shares(free, near, rounded(vcpus, threads), strict=strict)
    if parts is None:
        return None
    taken = tuple(core for node, count in parts.items() for core in _first(cores[node], count))
    sizes = {len(core) for core in taken}
    whole = len(sizes) == 1 and vcpus % max(sizes) == 0
    claimed = tuple(cpu for core in taken for cpu in core)
    return CpuChoice(claimed, claimed[:vcpus], max(sizes) if whole else 1, tuple(parts))


def _first(cores: Cores, cpus: int) -> Iterator[tuple[int, ...]]:
    for core in cores:
        if cpus <= 0:
            return
        cpus -= len(core)
        yield core


def check_pinnable(nodes: Sequence[NumaNode], cpus: Collection[int], host: str) -> None:
    """Whether a host may keep these for VMs that have theirs alone.

    :raises Conflict: ``host.cpus_unknown``; :raises InvalidInput: ``host.cpus_invalid``"""
    known = {cpu for node in nodes for cpu in node.cpus}
    if not cpus:
        return
    if not known:
        raise Conflict(
            "host.cpus_unknown", f"the agent of host {host} does not tell its CPUs",
            hint=f"'vgpuctl host upgrade-agent {host}' brings one that does; a kernel without NUMA has none that does",
        )  # fmt: skip
    unknown = set(cpus) - known
    if unknown:
        raise InvalidInput(
            "host.cpus_invalid",
            f"host {host} has no CPUs {cpus_text(unknown)}",
            hint=f"'vgpuctl host show {host}' tells them",
        )
    split = set(whole_cores(nodes, cpus)) - set(cpus)
    if split:
        raise InvalidInput(
            "host.cpus_invalid",
            f"CPUs {cpus_text(split)} are hyperthreads of cores that are named in part",
            hint="name whole cores: the CPUs of one core are given out together",
        )
    if known == set(cpus):
        raise InvalidInput(
            "host.cpus_invalid", "some CPUs must be left", hint="the host, QEMU and VMs that share run there"
        )
