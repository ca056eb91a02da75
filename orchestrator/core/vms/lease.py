# SPDX-License-Identifier: Apache-2.0
"""How long a VM may have its place, and what a tenant's policy allows. Moments: seconds since the epoch, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Final, Literal

from orchestrator.core.errors import InvalidInput, QuotaExceeded
from orchestrator.core.hosts.pool import check_pool_name
from orchestrator.core.maintenance.leaving import STOP, parse_leave
from orchestrator.core.vms.isolation import DEFAULT_ISOLATION, ISOLATIONS, Isolation
from orchestrator.core.vms.priority import PRIORITIES, Priority

Encryption = Literal["optional", "always"]
ENCRYPTIONS: Final[tuple[Encryption, ...]] = ("optional", "always")
DAY_S: Final = 86400
MIN_LEASE_S: Final = 60
MAX_LEASE_S: Final = 10 * 366 * DAY_S
MAX_GRACE_S: Final = 366 * DAY_S
_WARN_AT_MOST_S: Final = float(DAY_S)
_WARN_AT_LEAST_S: Final = 900.0


@dataclass(frozen=True, kw_only=True)
class TenantPolicy:
    """What holds for all VMs of a tenant. Durations are seconds; None: unlimited."""

    default_lease_s: int | None = None
    """Of a VM that is made without saying how long it is needed, in seconds; None: it never ends."""
    max_lease_s: int | None = None
    """No lease may end later than so long from now, new or extended, in seconds; None: any."""
    disk_grace_s: int = 7 * DAY_S
    """How long after its lease a VM's disk is kept without anybody being told to delete it, in seconds."""
    max_priority: Priority = "normal"
    """The highest that its VMs may have."""
    isolation: Isolation = DEFAULT_ISOLATION
    """How far its VMs are kept apart from other tenants'; what is placed already stays."""
    preempt: bool = False
    """Whether it may have VMs of lower priority stopped to make room for its own."""
    maintenance: str = STOP
    """When its VMs may be stopped for maintenance of their host: ``stop``: in its turn; ``22:00-05:00``: then, UTC;
    ``wait``: by their users alone."""
    pool: str | None = None
    """Where its new disks and volumes lie that name no pool themselves; None: on a host's own disk."""
    encryption: Encryption = "optional"
    """``always``: its new disks and volumes are encrypted, or refused."""


PolicyValue = int | str | bool | None

_BOUNDS: Final = {
    "default_lease_s": (MIN_LEASE_S, MAX_LEASE_S),
    "max_lease_s": (MIN_LEASE_S, MAX_LEASE_S),
    "disk_grace_s": (0, MAX_GRACE_S),
}
_CHOICES: Final[Mapping[str, tuple[PolicyValue, ...]]] = {
    "max_priority": PRIORITIES, "preempt": (False, True), "isolation": ISOLATIONS,
    "encryption": ENCRYPTIONS,
}  # fmt: skip
_NEVER_NONE: Final = {"disk_grace_s"}


def changed_policy(policy: TenantPolicy, values: Mapping[str, PolicyValue]) -> TenantPolicy:
    """With these values in place of its own, by the names of its members.

    :raises InvalidInput: ``policy.invalid``
    """
    for name, value in values.items():
        if name == "maintenance":
            parse_leave(str(value))
            continue
        if name == "pool":
            _ = None if value is None else check_pool_name(str(value))
            continue
        if name in _CHOICES:
            fits, hint = value in _CHOICES[name], ", ".join(str(choice) for choice in _CHOICES[name])
        else:
            least, most = _BOUNDS[name]
            fits = name not in _NEVER_NONE if value is None else isinstance(value, int) and least <= value <= most
            hint = f"{show_span(least)} to {show_span(most)}"
        if not fits:
            raise InvalidInput("policy.invalid", f"{name} cannot be {value}", hint=hint)
    return TenantPolicy(**{**asdict(policy), **values})


@dataclass(frozen=True, kw_only=True)
class WantedEnd:
    """The end that was asked for: after so many seconds, or at a moment, or neither."""

    after_s: int | None = None
    at: float | None = None


def new_lease_end(policy: TenantPolicy, wanted: WantedEnd, now: float) -> float | None:
    """When a VM made now gives its place back; None: never.

    :raises InvalidInput: ``lease.invalid``, ``lease.past``; :raises QuotaExceeded: ``lease.too_long``
    """
    end = _asked(wanted, now)
    if end is None:
        known = [span for span in (policy.default_lease_s, policy.max_lease_s) if span is not None]
        return now + min(known) if known else None
    _check_span(policy, end, now)
    return end


def extended_lease_end(policy: TenantPolicy, wanted: WantedEnd, now: float, old: float | None) -> float:
    """The new end; asking for the same again changes nothing.

    :raises InvalidInput: ``lease.invalid``, ``lease.past``, ``lease.shorter``
    :raises QuotaExceeded: ``lease.too_long``
    """
    end = _asked(wanted, now)
    if end is None:
        raise InvalidInput("lease.invalid", "no end was given", hint="--lease 4h, or --until 2026-12-01T10:00Z")
    if old is None or end < old:
        before = "has no end" if old is None else f"ends {show_moment(old)} already"
        raise InvalidInput("lease.shorter", f"the lease {before}", hint="an extension only makes it longer")
    _check_span(policy, end, now)
    return end


def _asked(wanted: WantedEnd, now: float) -> float | None:
    if wanted.after_s is not None and wanted.at is not None:
        raise InvalidInput("lease.invalid", "a lease has one end", hint="give a duration or a moment, not both")
    end = wanted.at if wanted.after_s is None else now + wanted.after_s
    if end is not None and end <= now:
        raise InvalidInput("lease.past", "the lease would be over already", hint="name a moment in the future")
    if end is not None and end > now + MAX_LEASE_S:
        raise InvalidInput("lease.invalid", "the lease is too long", hint=f"at most {MAX_LEASE_S // DAY_S}d")
    return end


def _check_span(policy: TenantPolicy, end: float, now: float) -> None:
    if policy.max_lease_s is not None and end > now + policy.max_lease_s:
        raise QuotaExceeded(
            "lease.too_long",
            f"the tenant's leases are at most {show_span(policy.max_lease_s)}",
            hint=f"ask for {show_span(policy.max_lease_s)} or less, and extend it later",
        )


def warning_s(created_at: float, end: float) -> float:
    """So long before its end a lease is warned of: a tenth of it, between a quarter of an hour and a day."""
    return min(_WARN_AT_MOST_S, max(_WARN_AT_LEAST_S, (end - created_at) / 10))


def ends_soon(created_at: float, end: float, now: float) -> bool:
    """Whether a lease is over, or near enough to its end to be warned of."""
    return now >= end - warning_s(created_at, end)


def parse_moment(text: str, *, field: str) -> float:
    """``2026-12-01T10:00Z``, or with another offset; never a local time, which means something else elsewhere.

    :raises InvalidInput: ``<field>.invalid``
    """
    wrong = InvalidInput(
        f"{field}.invalid",
        f"{field} {text[:40]!a} is not a moment with its offset",
        hint="for example 2026-12-01T10:00Z or 2026-12-01T11:00+01:00",
    )
    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
        seconds = moment.timestamp()
    except ValueError as error:
        raise wrong from error
    if moment.tzinfo is None:
        raise wrong
    return seconds


def show_moment(seconds: float) -> str:
    """To the second, UTC."""
    # datetime.UTC is not there in Python 3.10, which hosts may have.
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017


def show_span(seconds: int) -> str:
    """As people type it: the largest unit that is exact."""
    for unit, size in (("d", DAY_S), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
