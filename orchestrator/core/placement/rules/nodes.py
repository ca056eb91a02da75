# SPDX-License-Identifier: Apache-2.0
"""A VM has CPUs alone, memory of huge pages, or both from the NUMA node of its GPU: counted by node."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.hosts.cpus import rounded, shares
from orchestrator.core.placement.rules.rule import Amounts, Fact, GpuInUse, HostInUse, Need, Resource, find, need_of
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.units import MIB, show_size

_CPUS: Final = "cpus"
_MEMORY: Final = "memory"

ByNode = tuple[tuple[int, int], ...]
"""(NUMA node, CPUs of it)"""


@dataclass(frozen=True, slots=True)
class HasCpus(Fact):
    """The host's agent tells its CPUs."""

    shared: ByNode
    """Those that VMs share."""
    pinnable: int = 0
    """Kept for VMs that have theirs alone, taken or free."""
    threads: int = 1
    """CPUs of a core: whole cores are given out."""


@dataclass(frozen=True, slots=True)
class OfNodes(Need):
    """vCPUs and MiB of a VM of which at least one thing is counted by node."""

    codes = ("host.cpus_unknown", "host.none_pinnable", "host.cpus", "host.no_hugepages", "host.hugepages", "host.numa")
    curable = ("host.cpus", "host.hugepages")
    yielded = curable
    after_shortage = True
    near_gpus = True

    vcpus: int
    memory_mib: int
    alone: bool = False
    """Each vCPU has a CPU of its own."""
    page_kib: int = 0
    """Of huge pages; 0: its memory is of ordinary ones, and counted by node where it insists on one."""
    strict: bool = False
    """All of it must be of the NUMA node of the GPU."""

    @property
    def judges_empty_gpus(self) -> bool:
        return self.strict

    def off_host(self, host: HostInUse) -> Iterator[str]:
        code = self._off_cpus(host) or self._off_pages(host)
        if code is not None:
            yield code

    def _off_cpus(self, host: HostInUse) -> str | None:
        has = find(host.view.facts, HasCpus)
        if not self.alone:
            return "host.cpus_unknown" if self.strict and (has is None or not has.shared) else None
        if has is None:
            return "host.cpus_unknown"
        if has.pinnable == 0:
            return "host.none_pinnable"
        return "host.cpus" if sum(cpus_of(host.free).values()) < self._cpus(host) else None

    def _off_pages(self, host: HostInUse) -> str | None:
        if not self.page_kib:
            return None
        pages = memory_of(host.free, self.page_kib)
        if not pages:
            return "host.no_hugepages"
        return "host.hugepages" if sum(pages.values()) < self.memory_mib else None

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if self.strict and not self._fits_near(gpu):
            yield "host.numa"

    def _fits_near(self, gpu: GpuInUse) -> bool:
        node = node_of(gpu)
        if node is None:
            return False
        free, unknown = gpu.host.free, 0 if self.page_kib else self.memory_mib
        if free.get(Resource(_MEMORY, node, self.page_kib), unknown) < self.memory_mib:
            return False
        cpus = free.get(Resource(_CPUS, node), 0) if self.alone else dict(_shared(gpu.host)).get(node, 0)
        return cpus >= self._cpus(gpu.host)

    def side(self, gpu: GpuInUse) -> Hashable:
        return gpu.numa if self.strict else None

    def off_set(self, gpus: Sequence[GpuInUse]) -> Iterator[str]:
        if len({self.side(gpu) for gpu in gpus}) > 1:
            yield "host.numa"

    def takes(self, gpus: Sequence[GpuInUse]) -> Amounts:
        host = gpus[0].host
        near = [node for node in map(node_of, gpus) if node is not None]
        cpus: Mapping[int, int] = {}
        if self.alone:
            cpus = shares(cpus_of(host.free), near, self._cpus(host), strict=self.strict) or {}
            near = [*cpus, *near]
        memory, pages = memory_of(host.free, self.page_kib), {}
        if self.page_kib:
            pages = shares(memory, near, self.memory_mib, strict=self.strict) or {}
        elif self.strict and near and near[0] in memory:
            pages = {near[0]: self.memory_mib}
        return (*cpu_amounts(cpus), *memory_amounts(pages, self.page_kib))

    def short(
        self, host: HostInUse, gpus: Sequence[GpuInUse] | None, free: Mapping[Resource, int]
    ) -> tuple[int, ...] | None:
        strict = self.strict and gpus is not None
        near = {node_of(gpu) for gpu in gpus or ()}
        if strict and (len(near) != 1 or None in near):
            return None
        if strict and not self.alone and sum(n for node, n in _shared(host) if node in near) < self.vcpus:
            return None

        def lack(wanted: int, amounts: Mapping[int, int]) -> int:
            return max(0, wanted - sum(count for node, count in amounts.items() if not strict or node in near))

        memory = memory_of(free, self.page_kib)
        counted = bool(self.page_kib) or (strict and not near.isdisjoint(memory))
        cpus = lack(self._cpus(host), cpus_of(free)) if self.alone else 0
        return cpus, lack(self.memory_mib, memory) if counted else 0

    def _cpus(self, host: HostInUse) -> int:
        """CPUs that it needs there: of whole cores, where it has them alone."""
        has = find(host.view.facts, HasCpus) if self.alone else None
        return self.vcpus if has is None else rounded(self.vcpus, has.threads)

    def message(self, code: str) -> str:
        page = show_size(self.page_kib * 1024)
        return {
            "host.cpus_unknown": "the host's agent does not tell its CPUs",
            "host.none_pinnable": "the host keeps no CPUs for VMs that have theirs alone",
            "host.cpus": f"too few free CPUs that a VM may have alone for {self.vcpus}",
            "host.no_hugepages": f"the host has no huge pages of {page}",
            "host.hugepages": f"too few free huge pages of {page} for {show_size(self.memory_mib * MIB)}",
            "host.numa": f"the GPU's NUMA node has too few free CPUs for {self.vcpus} vCPUs, or too little memory",
        }[code]


def needs_of(wanted: Wanted) -> Iterator[Need]:
    vm, offering = wanted.vm, wanted.offering
    alone, strict = offering.cpu == "pinned", offering.numa == "strict"
    if alone or strict or offering.page_kib:
        yield OfNodes(vm.vcpus, vm.memory_mib, alone=alone, page_kib=offering.page_kib, strict=strict)


def own_of(needs: tuple[Need, ...]) -> tuple[int, int]:
    """vCPUs that have CPUs alone, and MiB of huge pages: of the host's other vCPUs and memory these take none."""
    need = need_of(needs, OfNodes)
    if need is None:
        return 0, 0
    return need.vcpus if need.alone else 0, need.memory_mib if need.page_kib else 0


def keeps_cpus(facts: tuple[Fact, ...]) -> bool:
    """Whether the host keeps CPUs for VMs that have theirs alone."""
    has = find(facts, HasCpus)
    return has is not None and has.pinnable > 0


def cpu_amounts(cpus: Mapping[int, int]) -> Amounts:
    """By NUMA node, those that VMs have alone or may have."""
    return tuple((Resource(_CPUS, node), count) for node, count in cpus.items())


def memory_amounts(memory: Mapping[int, int], page_kib: int) -> Amounts:
    """MiB by NUMA node, of such huge pages; of 0 KiB: of ordinary ones, for who insists on the node. A node whose
    memory is not known is left out, and nobody is kept off it."""
    return tuple((Resource(_MEMORY, node, page_kib), mib) for node, mib in memory.items())


def cpus_of(free: Mapping[Resource, int]) -> dict[int, int]:
    """As :func:`cpu_amounts` has it."""
    return {resource.node: count for resource, count in free.items() if resource.kind == _CPUS}


def memory_of(free: Mapping[Resource, int], page_kib: int) -> dict[int, int]:
    """As :func:`memory_amounts` has it."""
    return {res.node: mib for res, mib in free.items() if res.kind == _MEMORY and res.of == page_kib}


def _shared(host: HostInUse) -> ByNode:
    has = find(host.view.facts, HasCpus)
    return () if has is None else has.shared


def node_of(gpu: GpuInUse) -> int | None:
    """A machine with a single node that has CPUs often says of no device that it is near it. Where VMs have CPUs alone,
    the nodes with CPUs are those of which they have some, whatever is free or shared of them."""
    if gpu.numa is not None:
        return gpu.numa
    nodes = list(cpus_of(gpu.host.free)) or [node for node, cpus in _shared(gpu.host) if cpus]
    return nodes[0] if len(nodes) == 1 else None
