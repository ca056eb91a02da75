# SPDX-License-Identifier: Apache-2.0
"""/v1/tenants/{tenant}/quota"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from orchestrator.api.schemas.base import MAX_NAME
from orchestrator.api.schemas.tenants import ChangeQuotaBody, QuotaLineAnswer
from orchestrator.api.services import ServicesOf

router = APIRouter(prefix="/tenants/{tenant}/quota", tags=["tenants"])

Place = Annotated[str, Path(max_length=MAX_NAME, description="A tenant; * for the pool that all share")]


@router.get("")
def get(tenant: Place, services: ServicesOf) -> list[QuotaLineAnswer]:
    """Get a tenant's quota. Limits, and what is held under them."""
    return [QuotaLineAnswer.of(usage) for usage in services.tenancy.quotas.get(tenant)]


@router.patch("")
def change(tenant: Place, body: ChangeQuotaBody, services: ServicesOf) -> list[QuotaLineAnswer]:
    """Change a tenant's quota. Set limits or take them away; those not named stay."""
    return [
        QuotaLineAnswer.of(usage) for usage in services.tenancy.quotas.change(tenant, body.limits, anyway=body.anyway)
    ]
