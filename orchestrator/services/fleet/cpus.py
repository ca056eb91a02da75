# SPDX-License-Identifier: Apache-2.0
"""On which of a host's CPUs a planned VM runs, and where its memory is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.hosts.cpus import CpuPlace, choose, only_node, shares
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.views import Placement
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.services.fleet.numa import cores_left, memory_left, memory_of
from orchestrator.services.fleet.view import Overcommit, Viewed
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True)
class PlacedCpus:
    """``claimed``: whole cores that the VM has alone."""

    place: CpuPlace | None = None
    claimed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Placing:
    """What decides it. ``leaving``: ids of VMs that give theirs back first."""

    viewed: Viewed
    placement: Placement
    offering: Offering
    spec: VmSpec
    leaving: frozenset[str]
    overcommit: Overcommit

    @property
    def near(self) -> tuple[int, ...]:
        """Nodes of the VM's GPUs."""
        node_of, only = {gpu.gpu_id: gpu.numa for gpu in self.viewed.view.gpus}, only_node(self.viewed.facts.nodes)
        near = (node_of.get(gpu) for gpu in self.placement.gpu_ids)
        return tuple(node for node in (only if known is None else known for known in near) if node is not None)

    @property
    def strict(self) -> bool:
        return self.offering.numa == "strict"

    @property
    def shared(self) -> tuple[int, ...]:
        """CPUs that no VM has alone."""
        facts, pinnable = self.viewed.facts, self.viewed.seen.host.pinnable_cpus
        # An agent that does not tell any more is not believed to have none: it refuses the place that it does not know.
        cpus = [cpu for node in facts.nodes for cpu in node.cpus] or range(facts.vcpus)
        return tuple(sorted(cpu for cpu in cpus if cpu not in pinnable))

    def shared_of(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Those of these nodes; all, where they have none."""
        allowed = {cpu for node in self.viewed.facts.nodes if node.id in nodes for cpu in node.cpus}
        return tuple(cpu for cpu in self.shared if cpu in allowed) or self.shared


def place_cpus(placing: Placing) -> PlacedCpus:
    """Nothing of a VM that may run and lie anywhere, as placement puts none that have CPUs alone there.

    :raises ClaimLost: what was free is not any more"""
    if placing.offering.cpu == "pinned":
        placed = _pinned(placing)
    elif placing.strict:
        node = placing.near[:1]
        placed = PlacedCpus(CpuPlace(shared=placing.shared_of(node), nodes=node, memory="strict"))
    elif placing.viewed.seen.host.pinnable_cpus:
        placed = PlacedCpus(CpuPlace(shared=placing.shared))
    else:
        placed = PlacedCpus()
    if not placing.offering.page_kib:
        return placed
    return replace(placed, place=_of_pages(placing, placed.place or CpuPlace(shared=placing.shared)))


def _pinned(placing: Placing) -> PlacedCpus:
    """libvirt prefers one node or none."""
    cores = cores_left(placing.viewed.seen, placing.viewed.facts, placing.leaving)
    chosen = choose(cores, placing.near, placing.spec.vcpus, strict=placing.strict)
    if chosen is None:
        raise ClaimLost(f"CPUs of {placing.placement.host_id} are another's now")
    bare = CpuPlace(shared=placing.shared_of(chosen.nodes), pinned=chosen.pinned, threads=chosen.threads)
    if placing.strict:
        bare = replace(bare, nodes=chosen.nodes, memory="strict")
    elif placing.offering.numa == "prefer" and len(chosen.nodes) == 1:
        bare = replace(bare, nodes=chosen.nodes, memory="preferred")
    return PlacedCpus(bare, chosen.claimed)


def _of_pages(placing: Placing, place: CpuPlace) -> CpuPlace:
    """Bound to the nodes that they are counted on, whatever the offering says of nodes: so others' stay theirs."""
    viewed, size = placing.viewed, placing.offering.page_kib
    reserve = placing.overcommit.memory_reserve_mib
    left = memory_left(viewed.seen, viewed.facts, reserve, placing.leaving)
    free = {node: mib for (pages, node), mib in left.items() if pages == size}
    near = (*_nodes_of(placing, place.pinned), *placing.near)
    taken = shares(free, near, placing.spec.memory_mib, strict=placing.strict)
    if taken is None:
        raise ClaimLost(f"huge pages of {placing.placement.host_id} are another's now")
    return replace(place, page_kib=size, nodes=tuple(taken), page_mib=tuple(taken.values()), memory="strict")


def _nodes_of(placing: Placing, cpus: tuple[int, ...]) -> tuple[int, ...]:
    """NUMA nodes of the CPUs, in their order."""
    at = {cpu: node.id for node in placing.viewed.facts.nodes for cpu in node.cpus}
    return tuple(dict.fromkeys(at[cpu] for cpu in cpus))


def node_memory(vm: Vm, viewed: Viewed, overcommit: Overcommit) -> tuple[tuple[int, int], ...]:
    """What VMs may have together of the memory that this one takes, by node."""
    if vm.cpus is None:
        return ()
    memory = memory_of(viewed.facts, overcommit.memory_reserve_mib)
    return tuple((node, mib) for node, _ in vm.node_memory if (mib := memory.get((vm.cpus.page_kib, node))) is not None)


def check_node_memory(tx: Transaction, vm: Vm, capacity: HostCapacity) -> None:
    """Two controllers may plan at once. Call it after the claim is taken: from then on others' claims on that host
    wait, or are seen here.

    :raises ClaimLost: others have its NUMA node's memory by now"""
    if vm.cpus is None or not capacity.node_memory:
        return
    placed = {claim.vm for claim in tx.claims.of_host(vm.host)} - {vm.id}
    others = (other for other in tx.vms.list(host=vm.host) if other.id in placed)
    alike = [other for other in others if other.cpus is not None and other.cpus.page_kib == vm.cpus.page_kib]
    for node, most in capacity.node_memory:
        held = sum(mib for other in (*alike, vm) for used_node, mib in other.node_memory if used_node == node)
        if held > most:
            raise ClaimLost(f"the memory of NUMA node {node} of {vm.host} is another's now")
