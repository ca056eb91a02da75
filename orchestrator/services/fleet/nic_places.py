# SPDX-License-Identifier: Apache-2.0
"""Which function of a network card a planned VM gets."""

from __future__ import annotations

from orchestrator.core.hosts.nic import NicPlace, nic_mac
from orchestrator.core.placement.views import Placement
from orchestrator.services.fleet.gpus import Viewed
from orchestrator.services.fleet.nics import free_functions, given
from orchestrator.store.records import ClaimLost


def place_nic(viewed: Viewed, placement: Placement, vm_id: str, leaving: frozenset[str]) -> NicPlace | None:
    """None of a VM that asks for none.

    :raises ClaimLost: what was free is not any more"""
    if not placement.nic:
        return None
    nic = next((one for one in given(viewed.seen.host, viewed.facts) if one.address == placement.nic), None)
    free = () if nic is None else free_functions(viewed.seen, nic, leaving)
    if nic is None or not free:
        raise ClaimLost(f"network cards of {placement.host_id} are another's now")
    gpus = (gpu for gpu in viewed.view.gpus if gpu.gpu_id in placement.gpu_ids)
    under = any(gpu.nics_under_switch and nic.address in gpu.near_nics for gpu in gpus)
    return NicPlace(
        card=nic.address, function=free[0], functions=len(nic.functions), mac=nic_mac(vm_id), under_switch=under
    )  # fmt: skip
