# SPDX-License-Identifier: Apache-2.0
"""Bodies about operations."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, moment, moment_or_none
from orchestrator.api.schemas.vms import named_for
from orchestrator.api.telling import REMAINS, failure_for_tenant, is_of_guest
from orchestrator.core.operation import FINISHED, Asked, Operation, OperationState, StepRecord, StepState, WayOut
from orchestrator.operations.stuck import ways_out
from orchestrator.services.messages import Started


class StepAnswer(AnswerBody):
    """One step of an operation."""

    name: str = Field(description="Versioned, for example create_volume.1")
    title: str
    state: StepState
    started_at: datetime | None
    finished_at: datetime | None
    message: str

    @classmethod
    def of(cls, step: StepRecord, *, told: bool) -> StepAnswer:
        return cls(
            name=step.name,
            title=step.title,
            state=step.state,
            started_at=moment_or_none(step.started_at),
            finished_at=moment_or_none(step.finished_at),
            message=step.message if told else "",
        )


class OperationAnswer(AnswerBody):
    """What is being done. ``done``: it worked; ``undone``: it failed and was taken back; ``stuck``: that failed too."""

    id: str
    kind: str
    subject: str = Field(description="Id of the VM or name of the host it is about")
    subject_name: str = Field(description="tenant/name of the VM, or the host; stays when that is gone")
    tenant: str | None
    state: OperationState
    steps: tuple[StepAnswer, ...]
    attempt: int = Field(description="How many times it was tried; to go on when its guest has booted is the same one")
    created_at: datetime
    finished_at: datetime | None
    error: dict[str, object] | None
    remainder: tuple[str, ...] = Field(description="When stuck: exactly what is left and where")
    warnings: tuple[str, ...]
    waits_for_host_since: datetime | None = Field(
        default=None, description="Its host is out of reach: it goes on by itself when that answers again"
    )
    waits_for_host: str | None = Field(default=None, description="That host, for those who may know of it")
    asked_by: str | None = Field(
        default=None,
        description="Who began it: uid, token or login; operator: somebody of the pool, to its tenant; server: it did",
    )
    why: str | None = Field(default=None, description="Why, where nobody asked for it itself; null: somebody did")
    waits_for_guest: bool = Field(default=False, description="The guest boots: it goes on by itself when that is up")
    ways_out: tuple[WayOut, ...] = Field(
        default=(), description="What the reader may do to it as it stands, if its role may"
    )
    revision: int | None = Field(default=None, description="Grows with every change; for the next ?since=")

    @classmethod
    def of(cls, operation: Operation, revision: int | None = None, *, watching: bool) -> OperationAnswer:
        """``watching``: the reader may know what happened on which host."""
        left = (REMAINS,) if operation.remainder else ()
        wait = operation.host_wait if operation.host_wait and operation.host_wait.state == "waiting" else None
        return cls(
            revision=revision,
            id=operation.id,
            kind=operation.kind,
            subject=operation.subject,
            subject_name=operation.subject_name,
            tenant=operation.tenant,
            state=operation.state,
            steps=tuple(StepAnswer.of(step, told=watching or is_of_guest(operation, step)) for step in operation.steps),
            attempt=operation.tries,
            created_at=moment(operation.created_at),
            finished_at=moment_or_none(operation.finished_at),
            error=operation.error if watching else failure_for_tenant(operation.error),
            remainder=operation.remainder if watching else left,
            warnings=operation.warnings,
            waits_for_host_since=moment_or_none(None if wait is None else wait.since),
            waits_for_host=wait.host if wait is not None and watching else None,
            asked_by=_asked_by(operation.asked, watching=watching),
            why=None if operation.asked is None else operation.asked.why,
            ways_out=tuple(way for way in ways_out(operation) if watching or way == "cancel"),
            waits_for_guest=wait is None and operation.guest_wait == "waiting" and operation.state not in FINISHED,
        )


def _asked_by(asked: Asked | None, *, watching: bool) -> str | None:
    if asked is None or watching or not asked.of_pool or asked.by == "server":
        return None if asked is None else asked.by
    return "operator"


class StartedAnswer(AnswerBody):
    """An accepted change: which operation does it, and on what."""

    operation: str | None = Field(description="None: nothing has to be done")
    name: str
    existing: bool = Field(description="The same request was made before")
    preempted: tuple[str, ...] = Field(default=(), description="VMs that are stopped for it; others' are not named")
    provisioning: str | None = Field(
        default=None, description="The operation that then runs roles in the VM's guest; null: there is none"
    )

    @classmethod
    def of(cls, started: Started, tenants: Collection[str] | None = None) -> StartedAnswer:
        """``tenants``: whose things the caller may know of; None: everybody's."""
        return cls(
            operation=started.operation,
            name=started.name,
            existing=started.existing,
            preempted=named_for(tenants, started.preempted),
            provisioning=started.provisioning,
        )
