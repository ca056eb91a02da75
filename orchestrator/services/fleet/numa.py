# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs may have alone, memory near GPUs, huge pages: what of each NUMA node of a host is free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.cpus import Cores, NumaNode, free_cores, threads_of, whole_cores
from orchestrator.core.hosts.host import Host
from orchestrator.core.placement.rules.nodes import HasCpus, cpu_amounts, memory_amounts
from orchestrator.core.placement.rules.rule import Amounts, Fact
from orchestrator.core.vms.vm import Vm
from orchestrator.store.records import HostRecord


def cpu_facts(host: Host, facts: HostFacts) -> tuple[Fact, ...]:
    """Nothing of a host whose agent does not tell its CPUs."""
    if not facts.nodes:
        return ()
    pinnable = set(host.pinnable_cpus)
    shared = tuple((node.id, len(set(node.cpus) - pinnable)) for node in facts.nodes if node.cpus)
    return (HasCpus(shared, len(pinnable), threads_of(facts.nodes) if pinnable else 1),)


def free_by_node(seen: HostRecord, facts: HostFacts, memory_reserve_mib: int) -> Amounts:
    """Hosts that keep no CPUs for VMs that have theirs alone have none of those, taken or free."""
    cores = cores_left(seen, facts, frozenset()) if seen.host.pinnable_cpus else {}
    with_cpus = {node.id for node in facts.nodes if node.cpus}
    free: dict[int, dict[int, int]] = {}
    for (page_kib, node), mib in memory_left(seen, facts, memory_reserve_mib).items():
        free.setdefault(page_kib, {})[node] = max(0, mib)
    memory = (amount for page_kib, by_node in free.items() for amount in memory_amounts(by_node, page_kib))
    cpus = {node: sum(map(len, node_cores)) for node, node_cores in cores.items() if node in with_cpus}
    return (*cpu_amounts(cpus), *memory)


def memory_of(facts: HostFacts, memory_reserve_mib: int) -> dict[tuple[int, int], int]:
    """MiB that VMs may have by (KiB of a huge page, NUMA node); 0 KiB: ordinary memory, for who insists on the node.
    A node whose memory is not known is counted nowhere."""
    ordinary = ((node.id, node.ordinary_mib) for node in facts.nodes)
    memory = {(0, number): max(0, mib - memory_reserve_mib) for number, mib in ordinary if mib is not None}
    for node in facts.nodes:
        memory.update({(pages.size_kib, node.id): pages.mib for pages in node.hugepages if pages.mounted})
    return memory


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


def spent_of_nodes(vm: Vm, nodes: Sequence[NumaNode]) -> Amounts:
    if vm.cpus is None:
        return ()
    own = set(whole_cores(nodes, vm.cpus.pinned))
    cpus = {node.id: count for node in nodes if (count := len(own.intersection(node.cpus)))}
    return (*cpu_amounts(cpus), *memory_amounts(dict(vm.node_memory), vm.cpus.page_kib))


def _with_place(seen: HostRecord) -> Iterator[Vm]:
    placed = {claim.vm for claim in seen.claims}
    yield from (vm for vm in seen.vms if vm.id in placed or vm.state == "creating")
