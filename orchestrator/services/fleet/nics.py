# SPDX-License-Identifier: Apache-2.0
"""Functions of network cards: which of a host's are free, which cards are near which GPU, which one a VM gets."""

from __future__ import annotations

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.nic import HostNic, NicPlace, near, nic_mac
from orchestrator.core.placement.rules.nics import NearNics, card_of, functions_of, is_under_switch
from orchestrator.core.placement.rules.rule import Amounts, Fact
from orchestrator.core.placement.views import Placement
from orchestrator.services.fleet.numa import vms_coming
from orchestrator.services.fleet.view import Viewed
from orchestrator.store.records import ClaimLost, HostRecord


def given(host: Host, facts: HostFacts) -> tuple[HostNic, ...]:
    """Cards whose functions VMs may have."""
    return tuple(nic for nic in facts.nics if nic.address in host.rdma_nics)


def free_functions(seen: HostRecord, nic: HostNic, leaving: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Those that nobody has or waits for; those of VMs in ``leaving`` count as free."""
    taken = {claim.nic for claim in seen.claims if claim.vm not in leaving}
    taken.update(vm.nic.function for vm in vms_coming(seen) if vm.nic is not None)
    return tuple(
        function.address for function in nic.functions if function.held is None and function.address not in taken
    )


def free_of_nics(seen: HostRecord, facts: HostFacts) -> Amounts:
    """Functions that VMs may have, by card."""
    return functions_of({nic.address: len(free_functions(seen, nic)) for nic in given(seen.host, facts)})


def near_nics(host: Host, facts: HostFacts) -> dict[str, tuple[Fact, ...]]:
    """GPU → which cards are near it, of those that may be given."""
    nics = given(host, facts)
    return {gpu.address: (NearNics(*near(gpu.bridges, gpu.numa_node, nics)),) if nics else () for gpu in facts.gpus}


def place_nic(viewed: Viewed, placement: Placement, vm_id: str, leaving: frozenset[str]) -> NicPlace | None:
    """The function that a planned VM gets; None of a VM that asks for none.

    :raises ClaimLost: what was free is not any more"""
    card = card_of(placement.spent)
    if not card:
        return None
    nic = next((candidate for candidate in given(viewed.seen.host, viewed.facts) if candidate.address == card), None)
    free = () if nic is None else free_functions(viewed.seen, nic, leaving)
    if nic is None or not free:
        raise ClaimLost(f"network cards of {placement.host_id} are another's now")
    under = any(is_under_switch(gpu.facts, card) for gpu in viewed.view.gpus if gpu.gpu_id in placement.gpu_ids)
    return NicPlace(card=card, function=free[0], functions=len(nic.functions), mac=nic_mac(vm_id), under_switch=under)
