# SPDX-License-Identifier: Apache-2.0
"""Bodies about policies of tenants. Durations are seconds."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, RequestBody
from orchestrator.core.vms.isolation import Isolation
from orchestrator.core.vms.lease import MAX_GRACE_S, MAX_LEASE_S, MIN_LEASE_S, TenantPolicy
from orchestrator.core.vms.priority import Priority

_LEAVE = "VMs stop for driver upgrades: stop: in their host's turn; 22:00-05:00: then, UTC; wait: by users"


class ChangePolicyBody(RequestBody):
    """New values; what is not named stays."""

    model_config = ConfigDict(
        title="ChangePolicy", json_schema_extra={"examples": [{"default_lease_s": 28800, "max_lease_s": 2592000}]}
    )

    default_lease_s: int | None = Field(
        default=None, ge=MIN_LEASE_S, le=MAX_LEASE_S, description="Of a VM made without one; null: it never ends"
    )
    max_lease_s: int | None = Field(
        default=None, ge=MIN_LEASE_S, le=MAX_LEASE_S, description="The longest lease, from now on; null: any"
    )
    disk_grace_s: int = Field(
        default=TenantPolicy.disk_grace_s, ge=0, le=MAX_GRACE_S, description="How long a disk is kept after its lease"
    )
    max_priority: Priority = Field(default=TenantPolicy.max_priority, description="The highest that its VMs may have")
    isolation: Isolation = Field(
        default=TenantPolicy.isolation, description="How far its VMs are kept apart from other tenants'"
    )
    preempt: bool = Field(
        default=TenantPolicy.preempt, description="May it have VMs of lower priority stopped for its own?"
    )
    driver_upgrade: str = Field(default=TenantPolicy.driver_upgrade, max_length=40, description=_LEAVE)


class PolicyAnswer(AnswerBody):
    default_lease_s: int | None
    max_lease_s: int | None
    disk_grace_s: int
    max_priority: Priority
    isolation: Isolation
    preempt: bool
    driver_upgrade: str = Field(description=_LEAVE)

    @classmethod
    def of(cls, policy: TenantPolicy) -> PolicyAnswer:
        return cls(**asdict(policy))
