# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs may have alone, memory near GPUs, huge pages: what of each NUMA node of a host is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.cpus import Cores, NumaNode, free_cores, threads_of, whole_cores
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.nodes import ByNode
from orchestrator.core.placement.views import Occupied
from orchestrator.core.vms.vm import Vm
from orchestrator.store.records import HostRecord


@dataclass(frozen=True, kw_only=True)
class FreeByNode:
    """As the fields of a HostView are."""

    cpus: ByNode = ()
    memory: ByNode = ()
    shared: ByNode = ()
    pages: tuple[tuple[int, int, int], ...] = ()
    threads: int = 1
    pinnable: int | None


def free_by_node(seen: HostRecord, facts: HostFacts, memory_reserve_mib: int) -> FreeByNode:
    """Hosts that keep no CPUs for VMs that have theirs alone have none of those, taken or free."""
    if not facts.nodes:
        return FreeByNode(pinnable=None)
    pinnable = set(seen.host.pinnable_cpus)
    free = cores_left(seen, facts, frozenset()) if pinnable else {}
    with_cpus = {node.id for node in facts.nodes if node.cpus}
    left = memory_left(seen, facts, memory_reserve_mib)
    return FreeByNode(
        cpus=tuple((node, sum(map(len, cores))) for node, cores in free.items() if node in with_cpus),
        memory=tuple((node, max(0, mib)) for (size, node), mib in left.items() if not size),
        shared=tuple((node.id, len(set(node.cpus) - pinnable)) for node in facts.nodes if node.cpus),
        pages=tuple((size, node, max(0, mib)) for (size, node), mib in left.items() if size),
        threads=threads_of(facts.nodes) if pinnable else 1,
        pinnable=len(pinnable),
    )


def memory_of(facts: HostFacts, memory_reserve_mib: int) -> dict[tuple[int, int], int]:
    """MiB that VMs may have by (KiB of a huge page, NUMA node); 0 KiB: ordinary memory, for who insists on the node.
    A node whose memory is not known is counted nowhere."""
    told = ((node.id, node.ordinary_mib) for node in facts.nodes)
    found = {(0, number): max(0, mib - memory_reserve_mib) for number, mib in told if mib is not None}
    for node in facts.nodes:
        found.update({(pages.size_kib, node.id): pages.mib for pages in node.hugepages if pages.mounted})
    return found


def memory_left(
    seen: HostRecord, facts: HostFacts, memory_reserve_mib: int, leaving: frozenset[str] = frozenset()
) -> dict[tuple[int, int], int]:
    """The same without what VMs have or wait for; what those in ``leaving`` have counts as free."""
    held = Counter[tuple[int, int]]()
    for vm in _with_place(seen):
        if vm.cpus is not None and vm.id not in leaving:
            held.update({(vm.cpus.page_kib, node): mib for node, mib in vm.node_memory})
    return {key: mib - held[key] for key, mib in memory_of(facts, memory_reserve_mib).items()}


def cores_left(seen: HostRecord, facts: HostFacts, leaving: frozenset[str]) -> dict[int, Cores]:
    """By NUMA node, those that nobody has or waits for; those of VMs in ``leaving`` count as free."""
    taken = {cpu for claim in seen.claims if claim.vm not in leaving for cpu in claim.cpus}
    for vm in vms_coming(seen):
        if vm.cpus is not None:
            taken.update(whole_cores(facts.nodes, vm.cpus.pinned))
    return free_cores(facts.nodes, seen.host.pinnable_cpus, taken)


def vms_coming(seen: HostRecord) -> tuple[Vm, ...]:
    """VMs that wait until others have given their places back. Until then nobody else may have those."""
    placed = {claim.vm for claim in seen.claims}
    return tuple(vm for vm in seen.vms if vm.state == "creating" and vm.id not in placed)


def with_nodes(item: Occupied, vm: Vm | None, offering: Offering | None, nodes: Sequence[NumaNode]) -> Occupied:
    """With what its VM has that is counted by NUMA node. Its ``offering`` says whether it insists on one."""
    if vm is None or vm.cpus is None:
        return item
    place = vm.cpus
    own = set(whole_cores(nodes, place.pinned))
    counts = ((node.id, len(own.intersection(node.cpus))) for node in nodes)
    return replace(
        item,
        pinned=len(place.pinned),
        numa_strict=place.memory == "strict" if offering is None else offering.numa == "strict",
        cpus=tuple(one for one in counts if one[1]),
        huge_mib=sum(place.page_mib),
        page_kib=place.page_kib,
        node_memory=vm.node_memory,
    )


def _with_place(seen: HostRecord) -> Iterator[Vm]:
    placed = {claim.vm for claim in seen.claims}
    yield from (vm for vm in seen.vms if vm.id in placed or vm.state == "creating")
