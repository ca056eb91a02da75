# SPDX-License-Identifier: Apache-2.0
"""The state in which a GPU is, for its faults, for how long it was without any, and for what an operator says. Pure.

``watch``: placed on last. ``unfit``: nothing new is put on it until its faults are over; then it is on watch.
``quarantined``: as unfit, until a person returns it. Moments are the controller's, seconds since the epoch: clocks of
hosts decide nothing, only whether a signal has another time than before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from orchestrator.core.errors import Conflict, one_line
from orchestrator.core.gpu.health import (
    CLOSING_WORDS,
    NOT_JOINED,
    TENANT_WORD,
    GpuFault,
    GpuSignal,
    Remedy,
    closing_fault,
)

HealthState = Literal["healthy", "watch", "unfit", "quarantined"]
"""From the best on."""
HostReboot = Literal["due", "begun", "over"]
"""For a GPU whose reset failed: to be begun; begun, and the GPU is tried after it; nothing more is done by itself."""
BY_ITSELF: Final = "server"
"""Who closes GPUs where nobody asked for it: those that a person empties are that person's to reset."""
CLOSED: Final[frozenset[HealthState]] = frozenset({"unfit", "quarantined"})
CLEAN_S: Final = 86_400
"""So long without a fault ends a watch."""
JOINING_S: Final = 600
"""So long may driver and fabric manager train the links of a GPU, as after a boot: only longer is a fault. NVIDIA
publishes no bound."""
RELAPSES: Final = 3
RELAPSES_WITHIN_S: Final = 7 * 86_400
"""Unfit so many times in so long: what was done did not help, so a person decides."""
BREAKER_WITHIN_S: Final = 3600
BREAKER_LEAST: Final = 9
"""More than a board has: one host that dies opens no breaker."""
BREAKER_SHARE: Final = 0.2
MAX_REASON: Final = 200
MAX_EVIDENCE: Final = 20
RESET_FAILED: Final = "its reset failed"
MAX_WORD: Final = 500
WORDS_WITHIN_S: Final = 7 * 86_400
MAX_WORDS: Final = 20
"""Of all tenants on one GPU; the oldest goes."""
_SHOWN: Final = 3
_OUTPUT_LINES: Final = 5
_PASSING: Final[frozenset[Remedy]] = frozenset({"watch", "restart_vm", "support"})
"""Of a line in the log: nobody says when it is over."""

Noted = tuple[tuple[str, int], ...]
"""Signals, each with the time that it is told with."""


@dataclass(frozen=True, kw_only=True)
class TenantWord:
    """What a tenant says of a GPU when it gives a VM back that had it."""

    tenant: str
    text: str
    at: float

    @property
    def signal(self) -> GpuSignal:
        return GpuSignal(name=TENANT_WORD, text=f"{self.tenant}: {self.text}", at=int(self.at))


@dataclass(frozen=True, kw_only=True)
class GpuHealth:
    """What is known of one GPU's health."""

    state: HealthState = "healthy"
    """healthy, watch (placed on last), unfit or quarantined (nothing new is put on it)."""
    since: float = 0.0
    """In that state."""
    cause: str = ""
    """Why, for people."""
    evidence: tuple[str, ...] = ()
    """What was told of it last, the worst first; after a reset that failed, what was told since it began, and the last
    lines that the step said."""
    by: str | None = None
    """Who said so; null: the rules."""
    clean_since: float | None = None
    """Without a new fault since then; null: one lasts."""
    falls: tuple[float, ...] = ()
    """When it became unfit, in the last week."""
    acknowledged: str | None = None
    """Who has seen it in this state; null: nobody."""
    noted: Noted = ()
    waived: Noted = ()
    """Those that an operator has said are over, or no fault."""
    mends: bool = False
    """Quarantined so that it can be emptied and reset: a reset that goes well ends that."""
    spared: bool = False
    """On watch for a fault that closes GPUs, as the breaker was open."""
    words: tuple[TenantWord, ...] = ()
    """Of the last week."""
    joining_since: float | None = None
    """Its links to other GPUs are trained since then; null: they are, or it has none."""
    reboot: HostReboot | None = None
    """Of its host, as its reset failed that began by itself; null: none is."""
    failed_boot: str | None = None
    """Boot of its host in which that was."""
    functions: tuple[tuple[str, GpuHealth], ...] = ()
    """Of those of its virtual functions of which anything is remembered, by PCI address; they have none themselves."""

    @property
    def closed_functions(self) -> Mapping[str, GpuHealth]:
        """By PCI address, those that no new vGPU is put on."""
        return {function: its for function, its in self.functions if its.state in CLOSED}


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """Whether the rules may close GPUs."""

    opened: float | None = None
    """Since then they do not; null: they may."""
    why: str = ""
    """What opened it."""
    reset: float = 0.0
    """When a person last closed it."""


def next_health(
    before: GpuHealth | None, faults: Sequence[GpuFault], now: float, *, may_close: bool = True
) -> GpuHealth | None:
    """``faults``: all that are told now, the worst first. ``may_close``: False while the breaker is open. None: it is
    well, and nothing is to be remembered."""
    old = _joining(before or GpuHealth(), faults, now)
    standing = tuple(sorted(map(_key, faults)))
    waived = tuple(signal for signal in old.waived if signal in standing)
    counted = counting(faults, old, now)
    fresh = any(_key(fault) not in old.noted for fault in counted)
    lasting = any(not fault.signal.at or fault.remedy not in _PASSING for fault in counted)
    clean = None if lasting else now if fresh or old.clean_since is None else old.clean_since
    falls = tuple(at for at in old.falls if at + RELAPSES_WITHIN_S > now)
    words = tuple(word for word in old.words if word.at + WORDS_WITHIN_S > now)
    seen = replace(old, clean_since=clean, falls=falls, noted=standing, waived=waived, spared=False, words=words)
    if old.state == "quarantined":
        return seen
    closing = closing_fault(counted)
    if closing is not None:
        seen = replace(seen, falls=falls if old.state == "unfit" or old.spared else (*falls, now))
    if closing is not None and (may_close or old.state == "unfit"):
        seen = _closed(seen, closing, now)
    elif closing is not None:
        seen = replace(_to(seen, "watch", now, f"{_words(closing)} (breaker open)"), spared=True)
    elif counted and (lasting or fresh or old.state == "watch"):
        seen = _to(seen, "watch", now, counted[0].signal.words)
    elif old.state == "unfit":
        seen = _to(seen, "watch", now, f"{old.cause}; that is over")
    if counted and seen.state != "healthy":
        seen = replace(seen, evidence=tuple(fault.signal.words for fault in counted[:_SHOWN]))
    if seen.state == "watch" and clean is not None and clean + CLEAN_S <= now:
        seen = replace(seen, state="healthy", since=now, cause="", evidence=(), by=None, acknowledged=None)
    return None if seen.state == "healthy" and not (seen.noted or falls or waived or words or seen.functions) else seen


def with_function(whole: GpuHealth | None, function: str, its: GpuHealth | None) -> GpuHealth:
    """What is known of a GPU, with this of one of its virtual functions; None: nothing of that one any more."""
    known = whole or GpuHealth()
    functions = {**dict(known.functions), function: its}
    return replace(known, functions=tuple((at, kept) for at, kept in sorted(functions.items()) if kept is not None))


def is_new_fall(before: GpuHealth | None, faults: Sequence[GpuFault]) -> bool:
    """Whether it becomes unfit, and has not while the breaker was open: what the breaker counts."""
    old = before or GpuHealth()
    return old.state not in CLOSED and closing_fault(not_waived(faults, old)) is not None and not old.spared


def trips(falls: int, of: int) -> bool:
    """Whether so many of so many GPUs are more than rules may close within :data:`BREAKER_WITHIN_S`."""
    return falls >= BREAKER_LEAST and falls > BREAKER_SHARE * of


def reason_closed(health: GpuHealth | None) -> str | None:
    """Why nothing new is put on it, for people; None: something may be."""
    if health is None or health.state not in CLOSED:
        return None
    if health.state == "unfit":
        return health.cause
    return f"quarantined by {health.by}: {health.cause}" if health.by else f"quarantined: {health.cause}"


def not_waived(faults: Sequence[GpuFault], health: GpuHealth | None) -> tuple[GpuFault, ...]:
    """Those that count: of which no operator has said that they are over, or no fault."""
    waived = () if health is None else health.waived
    return tuple(fault for fault in faults if _key(fault) not in waived)


def counting(faults: Sequence[GpuFault], health: GpuHealth | None, now: float) -> tuple[GpuFault, ...]:
    """Those that are not waived, without a fabric that is not joined yet while that may still take time."""
    since = None if health is None else health.joining_since
    may_join = since is None or now < since + JOINING_S
    return tuple(
        fault for fault in not_waived(faults, health) if not (may_join and fault.signal.name == NOT_JOINED)
    )  # fmt: skip


def quarantined(before: GpuHealth | None, now: float, *, by: str, reason: str) -> GpuHealth:
    """By an operator. Whoever does it again changes the reason."""
    old = before or GpuHealth(clean_since=now)
    since = old.since if old.state == "quarantined" else now
    cause = one_line(reason, MAX_REASON) or "no reason given"
    return replace(
        old, state="quarantined", since=since, cause=cause, by=by, acknowledged=by, mends=False, reboot=None,
        failed_boot=None,
    )  # fmt: skip


def closed_to_mend(before: GpuHealth | None, now: float, *, by: str, reason: str) -> GpuHealth:
    """Nothing new comes onto it when its faults are over meanwhile. What a person has said of it stays."""
    if before is not None and before.state == "quarantined":
        return before
    cause = ": ".join(filter(None, [reason, "" if before is None else before.cause]))
    return replace(quarantined(before, now, by=by, reason=cause), mends=True)


def went_well(before: GpuHealth, now: float) -> GpuHealth:
    """Its reset has: it is on watch for a day. How often it fell stays."""
    return replace(
        before, state="watch", since=now, cause="it was reset and is well", by=None,
        clean_since=now, acknowledged=None, mends=False, reboot=None, failed_boot=None,
    )  # fmt: skip


def tried_after_reboot(before: GpuHealth) -> GpuHealth:
    """If it is well its quarantine ends; if it is not, no other reboot follows."""
    return replace(before, mends=True, reboot="over")


def failed_reset(
    before: GpuHealth | None, now: float, *, by: str, why: str, signals: Sequence[GpuSignal], output: str
) -> GpuHealth:
    """It stays quarantined, and nobody has seen that yet. ``signals``: told since its reset began; ``output``: of
    what failed, of any length. What is kept of a reset stays beside what is told after the reboot that followed."""
    cause = one_line(f"{RESET_FAILED}: {why}", MAX_REASON)
    newest = [signal.words for signal in signals[-MAX_EVIDENCE:]]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    evidence = tuple(one_line(line, MAX_WORD) for line in (*newest, *lines[-_OUTPUT_LINES:]))
    after = replace(quarantined(before, now, by=by, reason=cause), acknowledged=None, evidence=evidence)
    if before is None or before.reboot is None:
        return after
    kept = dict.fromkeys((*evidence, *before.evidence))
    most = MAX_EVIDENCE + _OUTPUT_LINES
    return replace(after, reboot=before.reboot, failed_boot=before.failed_boot, evidence=tuple(kept)[:most])


def with_reboot(before: GpuHealth, after: GpuHealth, boot: str) -> GpuHealth:
    """``after`` the reset failed: its host, which runs on ``boot``, is rebooted once where that began by itself."""
    return replace(after, reboot="due", failed_boot=boot) if before.by == BY_ITSELF else after


def returned(before: GpuHealth | None, faults: Sequence[GpuFault], now: float, *, by: str, reason: str) -> GpuHealth:
    """By an operator: what is told now counts no more, and for a day the GPU is on watch. Of one that is on watch, too:
    nobody else can say that what lasts is no fault.

    :raises Conflict: ``gpu.not_closed``"""
    if before is None or before.state == "healthy":
        raise Conflict(
            "gpu.not_closed", "nothing keeps VMs off it for its health: it is healthy", hint="'vgpuctl health show'"
        )
    standing = tuple(sorted(map(_key, faults)))
    cause = one_line(f"returned: {reason or 'no reason given'}", MAX_REASON)
    return GpuHealth(
        state="watch", since=now, cause=cause, evidence=before.evidence, by=by, clean_since=now, noted=standing,
        waived=standing, acknowledged=by, words=before.words, functions=before.functions,
    )  # fmt: skip


def with_word(before: GpuHealth | None, word: TenantWord) -> GpuHealth | None:
    """None: that tenant has said so of it within a day, which counts once."""
    old = before or GpuHealth()
    if any(known.tenant == word.tenant and known.at + CLEAN_S > word.at for known in old.words):
        return None
    return replace(old, words=(*old.words, word)[-MAX_WORDS:])


def acknowledged(before: GpuHealth | None, *, by: str) -> GpuHealth:
    """By an operator: nobody is alerted to it any more, until it is in another state.

    :raises Conflict: ``gpu.healthy``"""
    if before is None or before.state == "healthy":
        raise Conflict("gpu.healthy", "there is nothing to acknowledge: it is healthy", hint="'vgpuctl health show'")
    return replace(before, acknowledged=by)


def _joining(health: GpuHealth, faults: Sequence[GpuFault], now: float) -> GpuHealth:
    if all(fault.signal.name != NOT_JOINED for fault in faults):
        return replace(health, joining_since=None)
    return replace(health, joining_since=now) if health.joining_since is None else health


def _closed(seen: GpuHealth, closing: GpuFault, now: float) -> GpuHealth:
    if seen.state == "unfit":
        return replace(seen, cause=_words(closing))
    if len(seen.falls) >= RELAPSES:
        cause = f"unfit {len(seen.falls)} times within a week, last for {closing.signal.words}"
        return _to(seen, "quarantined", now, cause)
    return _to(seen, "unfit", now, _words(closing))


def _to(seen: GpuHealth, state: HealthState, now: float, cause: str) -> GpuHealth:
    if seen.state == state:
        return replace(seen, cause=cause, by=None)
    return replace(seen, state=state, since=now, cause=cause, by=None, acknowledged=None)


def _words(closing: GpuFault) -> str:
    return f"{CLOSING_WORDS[closing.remedy]}: {closing.signal.words}"


def _key(fault: GpuFault) -> tuple[str, int]:
    return fault.signal.name, fault.signal.at
