# SPDX-License-Identifier: Apache-2.0
"""Tenants that are to be kept apart, judged once more where a claim is stored."""

from __future__ import annotations

from orchestrator.core.claim import Claim
from orchestrator.core.geometry.build import MIG
from orchestrator.core.isolation import DEFAULT_ISOLATION, may_share_gpu, may_share_host
from orchestrator.ports.store.claims import ClaimLost
from orchestrator.ports.store.transaction import Transaction


def check_neighbours(tx: Transaction, tenant: str, claim: Claim) -> None:
    """Two controllers may plan for two tenants at once. Call it after the claim is taken: from then on others' claims
    on that host wait, or are seen here.

    :raises ClaimLost: it would come to lie beside a tenant that it is kept apart from; plan again
    """
    neighbours = tx.claims.neighbours(claim.host, tenant)
    isolations = tx.policies.isolations() if neighbours else {}
    mine = isolations.get(tenant, DEFAULT_ISOLATION)
    gpus = {one.gpu for one in claim.devices}
    for one in neighbours:
        theirs = isolations.get(one.tenant, DEFAULT_ISOLATION)
        shares = one.gpu not in gpus or may_share_gpu(mine, theirs, divided=one.cut == MIG)
        if not (shares and may_share_host(mine, theirs)):
            raise ClaimLost(f"another tenant is on {claim.host} now")
