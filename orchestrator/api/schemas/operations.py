# SPDX-License-Identifier: Apache-2.0
"""Bodies about operations."""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.api.schemas.base import AnswerBody, Moment
from orchestrator.api.schemas.vms import named_for
from orchestrator.api.visibility import REMAINS, failure_for_tenant, is_of_guest
from orchestrator.core.operation import FINISHED, Asked, Operation, StepRecord, WayOut
from orchestrator.operations.stuck import ways_out
from orchestrator.services.messages import Started


class StepAnswer(AnswerBody, copies=StepRecord):
    """One step of an operation."""

    started_at: Moment | None
    finished_at: Moment | None

    @classmethod
    def of(cls, step: StepRecord, *, messages: bool) -> StepAnswer:
        return cls.copied(step, message=step.message if messages else "")


class OperationAnswer(
    AnswerBody, copies=Operation, without={"ended_turn", "host_wait", "guest_wait", "went_on", "asked"}
):
    """What is being done. ``done``: it worked; ``undone``: it failed and was taken back; ``stuck``: that failed too."""

    steps: tuple[StepAnswer, ...]
    attempt: int
    """How many times it was tried; to go on when its guest has booted is the same one."""
    created_at: Moment
    finished_at: Moment | None
    error: dict[str, object] | None
    """Why it failed: code, message and hint; null: it did not."""
    waits_for_host_since: Moment | None = None
    """Its host is out of reach: it goes on by itself when that answers again."""
    waits_for_host: str | None = None
    """That host, for those who may know of it."""
    asked_by: str | None = None
    """Who began it: uid, token or login; operator: somebody of the pool, to its tenant; server: it did."""
    why: str | None = None
    """Why, where nobody asked for it itself; null: somebody did."""
    waits_for_guest: bool = False
    """The guest boots: it goes on by itself when that is up."""
    ways_out: tuple[WayOut, ...] = ()
    """What the reader may do to it as it stands, if its role may."""
    revision: int | None = None
    """Grows with every change; for the next ?since=."""

    @classmethod
    def of(cls, operation: Operation, revision: int | None = None, *, watching: bool) -> OperationAnswer:
        """``watching``: the reader may know what happened on which host."""
        left = (REMAINS,) if operation.remainder else ()
        wait = operation.host_wait if operation.host_wait and operation.host_wait.state == "waiting" else None
        return cls.copied(
            operation,
            revision=revision,
            steps=tuple(
                StepAnswer.of(step, messages=watching or is_of_guest(operation, step)) for step in operation.steps
            ),
            attempt=operation.tries,
            error=operation.error if watching else failure_for_tenant(operation.error),
            remainder=operation.remainder if watching else left,
            waits_for_host_since=None if wait is None else wait.since,
            waits_for_host=wait.host if wait is not None and watching else None,
            asked_by=_asked_by(operation.asked, watching=watching),
            why=None if operation.asked is None else operation.asked.why,
            ways_out=tuple(way for way in ways_out(operation) if watching or way == "cancel"),
            waits_for_guest=wait is None and operation.guest_wait == "waiting" and operation.state not in FINISHED,
        )


def _asked_by(requested: Asked | None, *, watching: bool) -> str | None:
    if requested is None or watching or not requested.of_pool or requested.by == "server":
        return None if requested is None else requested.by
    return "operator"


class StartedAnswer(AnswerBody):
    """An accepted change: which operation does it, and on what."""

    operation: str | None
    """None: nothing has to be done."""
    name: str
    """What it is called."""
    existing: bool
    """The same request was made before."""
    preempted: tuple[str, ...] = ()
    """VMs that are stopped for it; others' are not named."""
    moved: tuple[str, ...] = ()
    """VMs that move for it; others' are not named."""
    provisioning: str | None = None
    """The operation that then runs roles in the VM's guest; null: there is none."""

    @classmethod
    def of(cls, started: Started, tenants: Collection[str] | None = None) -> StartedAnswer:
        """``tenants``: whose things the caller may know of; None: everybody's."""
        return cls.copied(
            started, preempted=named_for(tenants, started.preempted), moved=named_for(tenants, started.moved)
        )
