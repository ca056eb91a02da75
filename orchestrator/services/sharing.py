# SPDX-License-Identifier: Apache-2.0
"""Who may not share a GPU or host, judged once more where a claim is stored."""

from __future__ import annotations

from orchestrator.core.claim import Claim
from orchestrator.core.geometry.build import MIG
from orchestrator.core.isolation import DEFAULT_ISOLATION, may_share_gpu, may_share_host
from orchestrator.core.vm import Vm
from orchestrator.ports.store.claims import ClaimLost
from orchestrator.ports.store.transaction import Transaction


def check_neighbours(tx: Transaction, vm: Vm, claim: Claim) -> None:
    """Two controllers may plan for two tenants at once. Call it after the claim is taken: from then on others' claims
    on that host wait, or are seen here.

    :raises ClaimLost: it would come to lie beside a tenant that it is kept apart from, or on a GPU that divides its
        time otherwise; plan again
    """
    tenant = vm.spec.tenant
    neighbours = tx.claims.neighbours(claim.host, tenant)
    others = [one for one in neighbours if one.tenant != tenant]
    isolations = tx.policies.isolations() if others else {}
    mine = isolations.get(tenant, DEFAULT_ISOLATION)
    gpus = {one.gpu for one in claim.devices}
    _check_schedulers(tx, vm, claim, any(one.scheduled and one.gpu in gpus for one in neighbours))
    for one in others:
        theirs = isolations.get(one.tenant, DEFAULT_ISOLATION)
        shares = one.gpu not in gpus or may_share_gpu(mine, theirs, divided=one.cut == MIG)
        if not (shares and may_share_host(mine, theirs)):
            raise ClaimLost(f"another tenant is on {claim.host} now")


def _check_schedulers(tx: Transaction, vm: Vm, claim: Claim, scheduled: bool) -> None:
    """``scheduled``: some VM on its GPUs asks for a scheduler, which may be this one's."""
    wanted = {device.gpu: device.scheduler for device in vm.devices}
    if not scheduled and not any(wanted.values()):
        return
    placed = {other.vm for other in tx.claims.of_host(claim.host)} - {vm.id}
    for there in tx.vms.list(host=claim.host):
        if there.id in placed and any(one.gpu in wanted and one.scheduler != wanted[one.gpu] for one in there.devices):
            raise ClaimLost(f"a GPU of {claim.host} divides its time otherwise now")
