# SPDX-License-Identifier: Apache-2.0
"""Bodies about the server itself, the site as a whole, and what controllers send each other."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from orchestrator.api.schemas.base import MAX_NAME, AnswerBody, CopiedAnswer
from orchestrator.api.schemas.maintenances import MaintenanceCountsAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.advice.overview import ModelUse
from orchestrator.core.controller import MAX_HOSTS_ASKED
from orchestrator.core.diff.finding import Severity
from orchestrator.core.hosts.host import HostState
from orchestrator.core.readings.received import KEPT_FRAMES


class ServerAnswer(AnswerBody):
    """The process that answers."""

    version: str
    """Its version."""
    pid: int | None
    """Its process on the server's machine; null: only operators are told."""
    started_at: datetime | None
    """When it began; null: only operators are told."""
    running_operations: int
    """Of those that the caller may see."""
    stops_after_idle_seconds: float | None
    """null: it stays, or only operators are told."""
    certificate_ends_at: datetime | None
    """When the certificate that it serves ends; null: it does not listen on the network, or only operators are told."""
    certificate_refused: str | None
    """Why the certificate that is in its file now is not served; null: it is, or only operators are told."""
    warnings: list[str] = Field(default=[])
    """What goes wrong in the server now; operators alone are told."""


class StopServerBody(StrictForm, example={"only_idle": True}):
    """How to stop."""

    only_idle: bool = False
    """Refuse while operations run."""


class JoinBody(StrictForm):
    """From the token."""

    id: str = Field(max_length=12)
    secret: str = Field(max_length=100)


class ReadingsBody(StrictForm):
    """What one controller asks another one for."""

    hosts: list[Annotated[str, Field(max_length=MAX_NAME)]] = Field(max_length=MAX_HOSTS_ASKED)
    moments: int = Field(ge=0, le=KEPT_FRAMES)


class JoinAnswer(AnswerBody):
    """What the new controller needs."""

    site: str
    key: str


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
    maintenances: tuple[MaintenanceCountsAnswer, ...] | None
    """Those that are not over; null for a tenant."""
