# SPDX-License-Identifier: Apache-2.0
"""Bodies of /v1/status."""

from __future__ import annotations

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.diff.finding import Severity
from orchestrator.core.drivers.upgrade import UpgradeState
from orchestrator.core.hosts.host import HostState


class HostCountsAnswer(AnswerBody):
    """Enrolled hosts."""

    states: dict[HostState, int] = Field(description="How many are in each state; states of none are left out")
    cordoned: int = Field(description="How many take no new VM")


class ModelUseAnswer(CopiedAnswer):
    """GPUs of one model; to a tenant those that its VMs are on."""

    model: str
    gpus: int = Field(description="How many there are")
    free: int | None = Field(description="With nothing on them and usable; null for a tenant")
    unusable: int | None = Field(description="On which nothing new is placed: cordoned or broken; null for a tenant")
    used: float = Field(description="How many whole GPUs the parts add up to that VMs have")


class TenantCountsAnswer(AnswerBody):
    """What one tenant has."""

    tenant: str
    vms: int = Field(description="How many it has, in any state")
    running: int = Field(description="How many of these run")
    gpus: int = Field(description="GPUs that some VM of it is on")
    used: float = Field(description="How many whole GPUs its parts of them add up to")


class OperationCountsAnswer(AnswerBody):
    """Operations that have not ended."""

    under_way: int = Field(description="Queued or running, also those that wait")
    stuck: int = Field(description="About which a person must decide")


class UpgradeCountsAnswer(AnswerBody):
    """A driver upgrade that is not over."""

    version: str = Field(description="Of the driver that is brought")
    state: UpgradeState
    done: int = Field(description="Hosts that have it")
    hosts: int = Field(description="Hosts that were asked for")


class StatusAnswer(AnswerBody):
    """The whole site on one screen; for a tenant its part."""

    hosts: HostCountsAnswer | None = Field(description="Null for a tenant")
    gpus: tuple[ModelUseAnswer, ...] = Field(description="By model")
    tenants: tuple[TenantCountsAnswer, ...] = Field(description="Those with VMs, by name")
    operations: OperationCountsAnswer
    findings: dict[Severity, int] | None = Field(
        description="What differs from what is wanted, by how bad it is; none of it: left out. Null for a tenant"
    )
    driver_upgrade: UpgradeCountsAnswer | None = Field(description="Null: none goes on, or for a tenant")
