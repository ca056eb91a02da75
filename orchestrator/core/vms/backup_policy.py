# SPDX-License-Identifier: Apache-2.0
"""How often a tenant's VMs are backed up by themselves, in which hours, and which of those backups stay. Pure.

Moments are seconds since the epoch, days and weeks those of UTC, so no clock is changed in between. Time is cut into
periods; in each a VM has one good backup, and what a pause has missed is made up for by one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, Literal

from orchestrator.core.errors import InvalidInput
from orchestrator.core.maintenance.leaving import DailyWindow, parse_window
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.lease import DAY_S

MIN_EVERY_S: Final = 3600
MAX_EVERY_S: Final = 366 * DAY_S
MAX_KEPT: Final = 400
MAX_POLICIES_OF_TENANT: Final = 20
MAX_ON_HOST: Final = 2
MAX_AT_ONCE: Final = 16
"""Operations that policies have begun, on a host and in all."""
RETRY_S: Final = 3600.0
"""So long after one that went wrong the next one is tried."""
MAX_OVER: Final = 100
"""So many backups of a VM that a policy does not keep may be there, as where none can be removed."""
_MONDAY_S: Final = 4 * DAY_S
"""The first one after the epoch: weeks begin with it."""
_MAX_SPREAD_S: Final = 3600.0
"""Within so long of a period's beginning its backups begin, each VM's at its own moment."""

VmBackupState = Literal["good", "overdue", "failed"]
"""``overdue``: none was made for a whole period more than it should be. ``failed``: what was tried last went wrong."""


@dataclass(frozen=True, kw_only=True)
class BackupPolicy:
    tenant: str
    """Whose VMs it is about."""
    name: str
    """What it is called in its tenant."""
    target: str
    """Name of the target that backups go to."""
    every_s: int = DAY_S
    """Length of a period, in seconds; in each a VM is backed up once."""
    window: str | None = None
    """In which hours of each day that may begin, like 01:00-05:00, UTC; None: at any time."""
    keep_daily: int = 7
    """Of so many days with a backup the last one stays."""
    keep_weekly: int = 4
    """And of so many weeks, which begin on Monday."""
    keep_monthly: int = 6
    """And of so many months. What none of these keeps is removed, if the policy made it."""
    verify_every_s: int | None = None
    """How often a VM's newest backup is read and compared with its digests, in seconds; None: never."""
    vms: tuple[str, ...] = ()
    """Ids of the VMs that it is about; none: all of the tenant."""
    paused: bool = False
    """It begins nothing, and removes nothing."""
    created_at: float
    """When it was made."""

    @property
    def full_name(self) -> str:
        """What it is called among those of all tenants."""
        return f"{self.tenant}/{self.name}"

    @property
    def hours(self) -> DailyWindow | None:
        return None if self.window is None else parse_window(self.window)

    @property
    def most(self) -> int:
        """Backups of one VM that may be there when it makes one more."""
        return self.keep_daily + self.keep_weekly + self.keep_monthly + MAX_OVER

    def covers(self, vm: str) -> bool:
        """``vm``: id of one of the tenant's."""
        return not self.vms or vm in self.vms


@dataclass(frozen=True, kw_only=True)
class BackupTurn:
    """What a policy has done last for one VM."""

    tenant: str
    policy: str
    vm: str
    """Id of the VM."""
    tried_at: float
    """When something was begun, or refused."""
    operation: str | None = None
    """That it has begun and not looked at since it ended."""
    error: dict[str, object] | None = None
    """Why what was tried last went wrong, as core/errors.py writes it, ``refused`` where nothing was begun; None: it
    did not."""


@dataclass(frozen=True, kw_only=True)
class PolicyBackups:
    """What there is of one policy's for one VM."""

    backups: int = 0
    """That are made to their end."""
    newest_at: float | None = None
    """Of the newest; None: there is none."""
    verified_at: float | None = None
    """When one of them was last found whole; None: none was."""
    unremoved: int = 0
    """That the policy tried to remove, and could not."""


NONE_YET: Final = PolicyBackups()


@dataclass(frozen=True, kw_only=True)
class VmBackupStanding:
    """How one VM stands under a policy."""

    vm: str
    """Name of the VM."""
    state: VmBackupState
    """good; overdue: it has none for a period longer than it should; failed: what was tried last went wrong."""
    backups: int
    """That the policy keeps of it now."""
    last_at: float | None
    """When the newest was begun; None: there is none."""
    verified_at: float | None
    """When one was last found whole; None: none was."""
    next_at: float
    """When the next one is to begin."""
    error: dict[str, object] | None
    """Why what was tried last went wrong, as core/errors.py writes it, ``refused`` where nothing was begun; None: it
    did not."""


def check_policy(policy: BackupPolicy) -> BackupPolicy:
    """:raises InvalidInput: ``backup.policy_invalid``, ``maintenance.window_invalid``"""
    _ = policy.hours
    spans = [policy.every_s, *([] if policy.verify_every_s is None else [policy.verify_every_s])]
    if not all(MIN_EVERY_S <= span <= MAX_EVERY_S for span in spans):
        raise InvalidInput("backup.policy_invalid", "that is no period of backups", hint="1h to 366d, for example 1d")
    keeps = (policy.keep_daily, policy.keep_weekly, policy.keep_monthly)
    if not all(0 <= count <= MAX_KEPT for count in keeps) or not any(keeps):
        hint = f"0 to {MAX_KEPT} of each, and one at least of days, weeks or months"
        raise InvalidInput("backup.policy_invalid", "a policy keeps some backups", hint=hint)
    return policy


def due_at(policy: BackupPolicy, every_s: int, vm: str, last: float | None, since: float) -> float:
    """When the next one begins in hours that the policy allows. ``last``: the last one that went well; None: none did,
    ``since`` there was something to do. Each VM has its own moment of the period, always the same."""
    begin = _period(policy, every_s, since) if last is None else _period(policy, every_s, last) + 1
    spread = min(_length(policy, every_s) / 2, _MAX_SPREAD_S) * (zlib.crc32(vm.encode()) % 1000) / 1000
    moment = max(begin * every_s + _phase(policy) + spread, since if last is None else 0.0)
    return _opens(policy, moment)


def run_at(policy: BackupPolicy, vm: str, created_at: float, made: PolicyBackups) -> float:
    """When the next backup begins of the VM of that id, which was made then."""
    return due_at(policy, policy.every_s, vm, made.newest_at, max(policy.created_at, created_at))


def is_due(policy: BackupPolicy, at: float, turn: BackupTurn | None, now: float) -> bool:
    """``at``: :func:`due_at`. In its hours, and not soon after one that went wrong."""
    return at <= now and rested(turn, now) and _opens(policy, now) == now


def rested(turn: BackupTurn | None, now: float) -> bool:
    """Whether what went wrong is to be tried again."""
    return turn is None or turn.error is None or now >= turn.tried_at + RETRY_S


def standing(policy: BackupPolicy, vm: tuple[str, str, float], made: PolicyBackups, turn: BackupTurn | None,
             now: float) -> VmBackupStanding:  # fmt: skip
    """``vm``: its id, its name, and when it was made."""
    vm_id, name, created_at = vm
    due = run_at(policy, vm_id, created_at, made)
    late_s = policy.every_s if policy.window is None else max(policy.every_s, DAY_S)
    error, late = None if turn is None else turn.error, not policy.paused
    return VmBackupStanding(
        vm=name, state="failed" if error is not None else "overdue" if late and now > due + late_s else "good",
        backups=made.backups, last_at=made.newest_at, verified_at=made.verified_at,
        next_at=_opens(policy, max(due, now)), error=error,
    )  # fmt: skip


def expired(policy: BackupPolicy, backups: Iterable[Backup]) -> tuple[Backup, ...]:
    """Those of one VM that the policy made and does not keep, oldest first; the rule is that of ``restic forget``:
    going back in time, the first of each day, week and month stays, until there are enough of them. The newest stays
    always."""
    newest_first = sorted(backups, key=lambda backup: (backup.created_at, backup.id), reverse=True)
    kept: set[str] = {backup.id for backup in newest_first[:1]}
    for count, form in ((policy.keep_daily, "%Y-%m-%d"), (policy.keep_weekly, "%G-%V"), (policy.keep_monthly, "%Y-%m")):
        kept |= _firsts(newest_first, count, form)
    return tuple(backup for backup in reversed(newest_first) if backup.id not in kept)


def _firsts(newest_first: Sequence[Backup], count: int, form: str) -> set[str]:
    firsts: dict[str, str] = {}
    for backup in newest_first:
        # datetime.UTC is not there in Python 3.10, which hosts may have.
        moment = datetime.fromtimestamp(backup.created_at, timezone.utc)  # noqa: UP017
        firsts.setdefault(moment.strftime(form), backup.id)
    return set(list(firsts.values())[:count])


def _phase(policy: BackupPolicy) -> float:
    """When a period began, on the first Monday."""
    hours = policy.hours
    return _MONDAY_S + (0 if hours is None else 60 * hours.begin_min)


def _period(policy: BackupPolicy, every_s: int, moment: float) -> int:
    return int((moment - _phase(policy)) // every_s)


def _length(policy: BackupPolicy, every_s: int) -> float:
    hours = policy.hours
    return every_s if hours is None else min(every_s, (hours.end_min - hours.begin_min) % (24 * 60) * 60)


def _opens(policy: BackupPolicy, moment: float) -> float:
    """That moment, or when its hours begin next."""
    hours = policy.hours
    return moment if hours is None else hours.opens_at(moment) or moment
