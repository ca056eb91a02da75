# SPDX-License-Identifier: Apache-2.0
"""/v1/tenants/{tenant}/policy"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.permissions import may_operate
from orchestrator.api.schemas.base import TenantInPath
from orchestrator.api.schemas.tenants import ChangePolicyBody, PolicyAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/tenants/{tenant}/policy", tags=["tenants"])


@router.get("")
def get(tenant: TenantInPath, services: ServicesOf) -> PolicyAnswer:
    """Get a tenant's policy. What holds for all VMs of the tenant."""
    return PolicyAnswer.of(services.tenancy.policies.get(tenant))


@router.patch("")
def change(tenant: TenantInPath, body: ChangePolicyBody, services: ServicesOf, caller: CallerOf) -> PolicyAnswer:
    """Change a tenant's policy. Set what is named; the rest stays, and so do the ends of leases that are there. The
    tenant's own admin says when its VMs may be stopped for a driver upgrade, and nothing else."""
    values = body.model_dump(exclude_unset=True)
    return PolicyAnswer.of(services.tenancy.policies.change(tenant, values, operator=may_operate(caller)))
