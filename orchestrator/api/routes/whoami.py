# SPDX-License-Identifier: Apache-2.0
"""/v1/whoami"""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.api.auth import CallerOf
from orchestrator.api.schemas.tenants import CallerAnswer

router = APIRouter(prefix="/whoami", tags=["tenants"])


@router.get("")
def get(caller: CallerOf) -> CallerAnswer:
    """Get who asks, as the audit names them, and what they may do where."""
    return CallerAnswer.of(caller)
