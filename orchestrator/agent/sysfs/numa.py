# SPDX-License-Identifier: Apache-2.0
"""NUMA nodes with their cores, memory and huge pages, as the kernel shows them (Documentation/ABI/stable/sysfs-devices-
node, Documentation/admin-guide/mm/hugetlbpage.rst). Nothing of them is ever changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.cpus import Cores, HugePages, NumaNode, parse_cpus

_NODE: Final = re.compile(r"node(\d+)", re.ASCII)
_PAGES: Final = re.compile(r"hugepages-(\d+)kB", re.ASCII)
_PAGE: Final = re.compile(r"pagesize=(\d+)([KMG])", re.ASCII)
_IN_KIB: Final = {"K": 1, "M": 1024, "G": 1024 * 1024}
_TOTAL: Final = re.compile(r"MemTotal:\s+(\d+) kB", re.ASCII)


def read(paths: Paths) -> tuple[NumaNode, ...]:
    """By number; none where the kernel knows no nodes."""
    system = paths.root / "sys/devices/system"
    found = (_NODE.fullmatch(name) for name in reading.names(system / "node"))
    numbers = sorted(int(match[1]) for match in found if match is not None)
    mounted = frozenset(_mounted(paths.root))
    return tuple(_node(system, number, mounted) for number in numbers)


def _mounted(root: Path) -> Iterator[int]:
    """Sizes of huge pages, in KiB, that a hugetlbfs is mounted for: libvirt gives QEMU those alone."""
    for line in (reading.text(root / "proc/mounts") or "").splitlines():
        words = line.split()
        size = _PAGE.search(words[3]) if len(words) > 3 and words[2] == "hugetlbfs" else None
        if size is not None:
            yield int(size[1]) * _IN_KIB[size[2]]


def _node(system: Path, number: int, mounted: frozenset[int]) -> NumaNode:
    directory = system / f"node/node{number}"
    memory = _TOTAL.search(reading.text(directory / "meminfo") or "")
    return NumaNode(
        id=number,
        cores=_cores(system, _cpus(directory / "cpulist")),
        memory_mib=None if memory is None else int(memory[1]) // 1024,
        hugepages=tuple(_huge_pages(directory / "hugepages", mounted)),
    )


def _cores(system: Path, online: tuple[int, ...]) -> Cores:
    """A core is asked about by its first CPU. One whose siblings are not told is a core of its own."""
    left, cores = set(online), []
    for cpu in online:
        if cpu in left:
            siblings = _cpus(system / f"cpu/cpu{cpu}/topology/thread_siblings_list")
            core = (cpu, *(sibling for sibling in siblings if sibling != cpu and sibling in left))
            left.difference_update(core)
            cores.append(tuple(sorted(core)))
    return tuple(cores)


def _cpus(file: Path) -> tuple[int, ...]:
    try:
        return parse_cpus(reading.text(file) or "")
    except InvalidInput:
        return ()


def _huge_pages(directory: Path, mounted: frozenset[int]) -> Iterator[HugePages]:
    sizes = (_PAGES.fullmatch(name) for name in reading.names(directory))
    for size in sorted(int(match[1]) for match in sizes if match is not None):
        pages = directory / f"hugepages-{size}kB"
        total, free = reading.number(pages / "nr_hugepages"), reading.number(pages / "free_hugepages")
        if total:
            yield HugePages(size_kib=size, total=total, free=free or 0, mounted=size in mounted)
