# SPDX-License-Identifier: Apache-2.0
"""CPUs that VMs may have alone, and memory near them: what of each NUMA node of a host is free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.cpu_place import free_cores, threads_of, whole_cores
from orchestrator.core.cpus import Cores, NumaNode
from orchestrator.core.host_facts import HostFacts
from orchestrator.core.placement.nodes import Cpus
from orchestrator.core.placement.views import Occupied
from orchestrator.core.vm import Vm
from orchestrator.ports.store.fleet import HostRecord


@dataclass(frozen=True, kw_only=True)
class NodeRooms:
    """As the fields of a HostView are."""

    cpus: Cpus = ()
    memory: tuple[tuple[int, int], ...] = ()
    threads: int = 1
    pinnable: int | None


def node_rooms(seen: HostRecord, facts: HostFacts, memory_reserve_mib: int) -> NodeRooms:
    """Nothing of a host that keeps no CPUs for VMs that have theirs alone: so hosts without that stay alike."""
    if not facts.nodes:
        return NodeRooms(pinnable=None)
    if not seen.host.pinnable_cpus:
        return NodeRooms(pinnable=0)
    free = cores_left(seen, facts, frozenset())
    held = dict.fromkeys((node.id for node in facts.nodes), memory_reserve_mib)
    for vm in _with_place(seen):
        node = insisted_on(vm)
        if node in held:
            held[node] += vm.spec.memory_mib
    return NodeRooms(
        cpus=tuple((node, sum(map(len, cores))) for node, cores in free.items()),
        memory=tuple((node.id, max(0, node.memory_mib - held[node.id])) for node in facts.nodes),
        threads=threads_of(facts.nodes),
        pinnable=len(seen.host.pinnable_cpus),
    )


def cores_left(seen: HostRecord, facts: HostFacts, leaving: frozenset[str]) -> dict[int, Cores]:
    """By NUMA node, those that nobody has or waits for; those of VMs in ``leaving`` count as free."""
    taken = {cpu for claim in seen.claims if claim.vm not in leaving for cpu in claim.cpus}
    for vm in vms_coming(seen):
        if vm.cpus is not None:
            taken.update(whole_cores(facts.nodes, vm.cpus.pinned))
    return free_cores(facts.nodes, seen.host.pinnable_cpus, taken)


def insisted_on(vm: Vm) -> int | None:
    """The NUMA node that all of its memory has to be on; None: there is none."""
    return vm.cpus.nodes[0] if vm.cpus is not None and vm.cpus.memory == "strict" else None


def vms_coming(seen: HostRecord) -> tuple[Vm, ...]:
    """VMs that wait until others have given their places back. Until then nobody else may have those."""
    placed = {claim.vm for claim in seen.claims}
    return tuple(vm for vm in seen.vms if vm.state == "creating" and vm.id not in placed)


def with_cpus(item: Occupied, vm: Vm | None, nodes: Sequence[NumaNode]) -> Occupied:
    """With what its VM has alone of the host's CPUs."""
    if vm is None or vm.cpus is None or not vm.cpus.pinned:
        return item
    own = set(whole_cores(nodes, vm.cpus.pinned))
    counts = ((node.id, len(own.intersection(node.cpus))) for node in nodes)
    return replace(
        item,
        pinned=len(vm.cpus.pinned),
        numa_strict=vm.cpus.memory == "strict",
        cpus=tuple(one for one in counts if one[1]),
    )


def _with_place(seen: HostRecord) -> Iterator[Vm]:
    placed = {claim.vm for claim in seen.claims}
    yield from (vm for vm in seen.vms if vm.id in placed or vm.state == "creating")
