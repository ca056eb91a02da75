# SPDX-License-Identifier: Apache-2.0
"""An operation: a frozen list of named steps walked by the one generic workflow (operations/walk.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.names import closest, near

OperationState = Literal["queued", "running", "undoing", "done", "undone", "stuck"]
"""``undone``: it failed and everything it had done was taken back. ``stuck``: that failed too."""

StepState = Literal["pending", "running", "done", "failed", "undoing", "undone", "undo_failed"]

WaitState = Literal["waiting", "tried", "over"]
"""Of an operation that waits for its host or its guest. ``waiting``: it is not run. ``tried``: it goes on, as what it
waits for was seen or somebody wants it to end, and waits again when that is not so. ``over``: it has waited long enough
and does without."""

WayOut = Literal["cancel", "retry", "abandon"]
FINISHED: frozenset[OperationState] = frozenset({"done", "undone", "stuck"})
UNFINISHED: tuple[OperationState, ...] = ("queued", "running", "undoing")
"""The others. What is asked of all operations names these: they are few, and found by the index."""
UNSETTLED: tuple[OperationState, ...] = (*UNFINISHED, "stuck")
"""What somebody waits for or must decide about."""
OUT_OF_REACH = frozenset(
    {
        "host.unreachable",
        "agent.not_running",
        "agent.sessions_full",
        "agent.channel_cut",
        "agent.answer_late",
        "libvirt.unreachable",
        "agent.ledger_lost",
    }
)
"""What says that an operation only misses its host, as one that reboots: it waits for it. Stuck by one of these it goes
on when the host is back."""

KINDS = frozenset(
    {
        "accept_gpus",
        "add_host",
        "adopt_vm",
        "apply_mig",
        "boot_backup",
        "clean_up",
        "convert_network",
        "create_pool",
        "create_stopped_vm",
        "create_vm",
        "delete_lost_vm",
        "delete_pool",
        "delete_vm",
        "evacuate_stopped_vm",
        "evacuate_vm",
        "fence_host",
        "free_vm",
        "give_up_vms",
        "mend_host",
        "move_running_vm",
        "move_vm",
        "move_vm_cold",
        "preempt_for_vm",
        "provision_host",
        "provision_vm",
        "reboot_host",
        "release_mig",
        "remove_host",
        "reset_gpu",
        "rename_vm",
        "attach_volume",
        "detach_volume",
        "grow_volume",
        "limit_volume",
        "create_snapshot",
        "grow_disk",
        "delete_snapshot",
        "restore_snapshot",
        "create_image",
        "create_volume_snapshot",
        "restore_volume_snapshot",
        "copy_volume",
        "fetch_volume",
        "back_up_vm",
        "restore_backup",
        "verify_backup",
        "delete_backup",
        "import_backups",
        "attach_network",
        "detach_network",
        "delete_volume",
        "resize_running_vm",
        "resize_vm",
        "discard_suspended_vm",
        "restart_vm",
        "resume_vm",
        "settle_ledger",
        "start_freed_vm",
        "start_vm",
        "stop_vm",
        "suspend_vm",
        "upgrade_agent",
        "upgrade_driver",
    }
)
"""Of all definitions (operations/definitions), for who only asks."""

STEP_TRANSITIONS: dict[StepState, frozenset[StepState]] = {
    "pending": frozenset({"running"}),
    "running": frozenset({"running", "done", "failed"}),
    "done": frozenset({"undoing"}),
    "failed": frozenset({"undoing"}),
    "undoing": frozenset({"undoing", "undone", "undo_failed"}),
    "undo_failed": frozenset({"undoing"}),
    "undone": frozenset(),
}
"""Legal moves of a step. ``running → running``: picked up again after a crash."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step as the journal holds it. Times are seconds since the epoch, UTC."""

    name: str
    """Versioned, e.g. ``create_volume.1``: old operations stay readable when the code moves on."""
    title: str
    """For people: ``disk on lab1``."""
    state: StepState
    """Where it stands."""
    started_at: float | None = None
    """When it began; None: it has not."""
    finished_at: float | None = None
    """When it ended; None: it has not."""
    message: str = ""
    """One sentence for people."""


@dataclass(frozen=True, kw_only=True)
class HostWait:
    """Its host is out of reach, so an operation stands where it is. ``since``: seconds since the epoch, for people."""

    host: str
    since: float
    state: WaitState


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Who began an operation. ``of_pool``: by a role in the whole pool, so that tenants are told no name."""

    by: str
    """``uid:1000``, ``token:3f2a…``, a login, or ``server``."""
    of_pool: bool
    why: str | None = None
    """None: this is what was asked for."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    id: str
    """Stays the same for ever."""
    kind: str
    """``create_vm``, ``start_vm``, ``add_host`` …"""
    subject: str
    """Id of the VM or name of the host it is about."""
    subject_name: str
    """``tenant/name`` of the VM as it was called, or the name of the host; stays when that is gone."""
    tenant: str | None
    """Whose it is."""
    state: OperationState
    """Where it stands."""
    steps: tuple[StepRecord, ...]
    """In the order they are done."""
    attempt: int
    """Runs that have begun; of the fencing token."""
    created_at: float
    """When it was made."""
    finished_at: float | None = None
    """When it ended; None: it has not."""
    error: dict[str, object] | None = None
    """What made it fail (core/errors.error_to_dict)."""
    remainder: tuple[str, ...] = field(default=())
    """When stuck: exactly what is left behind and where."""
    warnings: tuple[str, ...] = field(default=())
    """What went otherwise than asked and is no failure."""
    ended_turn: int | None = None
    """When it ended, counted in ends of operations (store/operations.py); the store alone sets it."""
    host_wait: HostWait | None = None
    """Until a step of it is done again, or it has ended; one that has waited long enough never waits again."""
    guest_wait: WaitState | None = None
    """Whether it waits for its VM's guest to boot; None: that step has not looked yet, or has ended."""
    went_on: int = 0
    """Runs among its attempts that went on after such a wait; the store alone counts them."""
    asked: Asked | None = None
    """None: an older version began it."""

    @property
    def tries(self) -> int:
        """Attempts as people count them: going on when the guest has booted is none."""
        return self.attempt - self.went_on

    def over_by(self, turn: int) -> bool:
        """It has ended, and whoever began to observe at that turn has seen all that it did."""
        return self.state in FINISHED and (self.ended_turn or 0) <= turn


@dataclass(frozen=True, kw_only=True)
class Watched:
    """An operation and its revision, a number that grows with every change of it."""

    operation: Operation
    revision: int


def check_kind(kind: str) -> str:
    """:raises InvalidInput: ``operation.kind_unknown`` with near names"""
    if kind not in KINDS:
        meant = closest(kind, sorted(KINDS))
        hint = f"did you mean {', '.join(meant)}?" if meant else f"one of {', '.join(sorted(KINDS))}"
        raise InvalidInput("operation.kind_unknown", f"no operation is of kind {kind[:40]!a}", hint=hint)
    return kind


def unknown_operation(operation_id: str) -> NotFound:
    """The one error for an operation that is not there and for one the caller may not know of."""
    return NotFound(
        "operation.unknown", f"no operation has the id {operation_id[:40]!a}", hint="'vgpuctl operation list' has them"
    )


def unknown_subject(name: str, known: Iterable[str]) -> NotFound:
    """``known``: names and ids that operations may be about, as far as the caller may know of them."""
    hint = near(name, known, "vgpuctl operation list")
    return NotFound("operation.subject_unknown", f"nothing is or was called {name[:80]!a}", hint=hint)
