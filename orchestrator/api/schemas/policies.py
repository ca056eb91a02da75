# SPDX-License-Identifier: Apache-2.0
"""Bodies about policies of tenants. Durations are seconds."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import CopiedAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.vms.lease import MAX_GRACE_S, MAX_LEASE_S, MIN_LEASE_S, TenantPolicy


class ChangePolicyBody(StrictForm, copies=TenantPolicy, defaults=True):
    """New values; what is not named stays."""

    model_config = ConfigDict(
        title="ChangePolicy", json_schema_extra={"examples": [{"default_lease_s": 28800, "max_lease_s": 2592000}]}
    )

    default_lease_s: int | None = Field(default=None, ge=MIN_LEASE_S, le=MAX_LEASE_S)
    max_lease_s: int | None = Field(default=None, ge=MIN_LEASE_S, le=MAX_LEASE_S)
    disk_grace_s: int = Field(default=TenantPolicy.disk_grace_s, ge=0, le=MAX_GRACE_S)
    driver_upgrade: str = Field(default=TenantPolicy.driver_upgrade, max_length=40)


class PolicyAnswer(CopiedAnswer, copies=TenantPolicy):
    """What holds for all VMs of a tenant."""
