# SPDX-License-Identifier: Apache-2.0
"""Bodies of /v1/status."""

from __future__ import annotations

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.advice.overview import ModelUse
from orchestrator.core.diff.finding import Severity
from orchestrator.core.drivers.upgrade import UpgradeState
from orchestrator.core.hosts.host import HostState


class HostCountsAnswer(AnswerBody):
    """Enrolled hosts."""

    states: dict[HostState, int]
    """How many are in each state; states of none are left out."""
    cordoned: int
    """How many take no new VM."""


class ModelUseAnswer(CopiedAnswer, copies=ModelUse):
    """GPUs of one model; to a tenant those that its VMs are on."""


class TenantCountsAnswer(AnswerBody):
    """What one tenant has."""

    tenant: str
    """Whose it is."""
    vms: int
    """How many it has, in any state."""
    running: int
    """How many of these run."""
    gpus: int
    """GPUs that some VM of it is on."""
    used: float
    """How many whole GPUs its parts of them add up to."""


class OperationCountsAnswer(AnswerBody):
    """Operations that have not ended."""

    under_way: int
    """Queued or running, also those that wait."""
    stuck: int
    """About which a person must decide."""


class UpgradeCountsAnswer(AnswerBody):
    """A driver upgrade that is not over."""

    version: str
    """Of the driver that is brought."""
    state: UpgradeState
    """Where it stands."""
    done: int
    """Hosts that have it."""
    hosts: int
    """Hosts that were asked for."""


class StatusAnswer(AnswerBody):
    """The whole site on one screen; for a tenant its part."""

    hosts: HostCountsAnswer | None
    """Null for a tenant."""
    gpus: tuple[ModelUseAnswer, ...]
    """By model."""
    tenants: tuple[TenantCountsAnswer, ...]
    """Those with VMs, by name."""
    operations: OperationCountsAnswer
    """Their ids."""
    findings: dict[Severity, int] | None
    """What differs from what is wanted, by how bad it is; none of it: left out. Null for a tenant."""
    driver_upgrade: UpgradeCountsAnswer | None
    """Null: none goes on, or for a tenant."""
