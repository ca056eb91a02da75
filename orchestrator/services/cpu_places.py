# SPDX-License-Identifier: Apache-2.0
"""Which of a host's CPUs a planned VM runs on."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.claim import HostCapacity
from orchestrator.core.cpu_place import CpuChoice, CpuPlace, choose
from orchestrator.core.offering import Offering
from orchestrator.core.placement.views import Placement
from orchestrator.core.vm import Vm, VmSpec
from orchestrator.ports.store.claims import ClaimLost
from orchestrator.ports.store.transaction import Transaction
from orchestrator.services.fleet_view import Overcommit
from orchestrator.services.gpu_views import Viewed
from orchestrator.services.node_rooms import cores_left, insisted_on


@dataclass(frozen=True)
class PlacedCpus:
    """``claimed``: whole cores that the VM has alone."""

    place: CpuPlace | None = None
    claimed: tuple[int, ...] = ()


def place_cpus(
    viewed: Viewed, placement: Placement, offering: Offering, spec: VmSpec, leaving: frozenset[str]
) -> PlacedCpus:
    """On a host that keeps no CPUs for VMs that have theirs alone: anywhere, as placement puts none of those there.
    ``leaving``: ids of VMs that give theirs back first.

    :raises ClaimLost: what was free is not any more"""
    pinnable, nodes = viewed.seen.host.pinnable_cpus, viewed.facts.nodes
    # An agent that does not tell any more is not believed to have none: it refuses the place that it does not know.
    there = [cpu for node in nodes for cpu in node.cpus] or range(viewed.facts.vcpus)
    shared = tuple(cpu for cpu in there if cpu not in pinnable)
    if not pinnable:
        return PlacedCpus()
    if offering.cpu != "pinned":
        return PlacedCpus(CpuPlace(shared=tuple(sorted(shared))))
    strict = offering.numa == "strict"
    cores = cores_left(viewed.seen, viewed.facts, leaving)
    chosen = choose(cores, _nodes_near(viewed, placement), spec.vcpus, strict=strict)
    if chosen is None:
        raise ClaimLost(f"CPUs of {placement.host_id} are another's now")
    of_nodes = {cpu for node in nodes if node.id in chosen.nodes for cpu in node.cpus}
    near = tuple(cpu for cpu in shared if cpu in of_nodes)
    return PlacedCpus(_place(offering, chosen, tuple(sorted(near or shared))), chosen.claimed)


def _place(offering: Offering, chosen: CpuChoice, shared: tuple[int, ...]) -> CpuPlace:
    """libvirt prefers one node or none."""
    bare = CpuPlace(shared=shared, pinned=chosen.pinned, threads=chosen.threads)
    if offering.numa == "strict":
        return CpuPlace(
            shared=shared, pinned=chosen.pinned, threads=chosen.threads, nodes=chosen.nodes, memory="strict"
        )
    if offering.numa == "prefer" and len(chosen.nodes) == 1:
        return CpuPlace(
            shared=shared, pinned=chosen.pinned, threads=chosen.threads, nodes=chosen.nodes, memory="preferred"
        )
    return bare


def _nodes_near(viewed: Viewed, placement: Placement) -> tuple[int, ...]:
    """Of the VM's GPUs. A machine with a single node often says of no device that it is near it."""
    nodes = viewed.facts.nodes
    told = {gpu.gpu_id: gpu.numa for gpu in viewed.view.gpus}
    near = (told.get(gpu) for gpu in placement.gpu_ids)
    only = nodes[0].id if len(nodes) == 1 else None
    return tuple(node for node in (only if one is None else one for one in near) if node is not None)


def node_memory(vm: Vm, viewed: Viewed, overcommit: Overcommit) -> int | None:
    """What VMs that insist on its NUMA node may have of that node's memory; None: it insists on none."""
    mib = {node.id: node.memory_mib for node in viewed.facts.nodes}
    node = insisted_on(vm)
    return None if node is None else max(0, mib[node] - overcommit.memory_reserve_mib)


def check_node_memory(tx: Transaction, vm: Vm, capacity: HostCapacity) -> None:
    """Two controllers may plan at once. Call it after the claim is taken: from then on others' claims on that host
    wait, or are seen here.

    :raises ClaimLost: others have its NUMA node's memory by now"""
    node = insisted_on(vm)
    if node is None or capacity.node_memory_mib is None:
        return
    placed = {claim.vm for claim in tx.claims.of_host(vm.host)} - {vm.id}
    others = (one for one in tx.vms.list(host=vm.host) if one.id in placed and insisted_on(one) == node)
    if sum(one.spec.memory_mib for one in others) + vm.spec.memory_mib > capacity.node_memory_mib:
        raise ClaimLost(f"the memory of NUMA node {node} of {vm.host} is another's now")
