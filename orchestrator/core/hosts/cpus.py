# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host, as its kernel numbers them, and the NUMA nodes and cores that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import InvalidInput

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
        """All of them."""
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

    @property
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
