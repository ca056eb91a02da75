# SPDX-License-Identifier: Apache-2.0
"""The rules on a log that was kept: what they would have said, and how often they would have been right. Pure.

Each line is judged by what was written before it. Read are kernel logs as ``dmesg``, ``journalctl -k`` and /dev/kmsg
have them, and traces of faults as JSON in the form of stepfun-ai/InfiniteHBD-Trace (README.md, 7aacdc8).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import median
from typing import Any, Final

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.health import MISSING, SEVERAL, GpuSignal, Meanings, faults_of
from orchestrator.core.gpu.health_states import GpuHealth, HealthState, is_new_fall, next_health
from orchestrator.core.gpu.kernel_lines import KernelLine, LoggedSignals, parse_line

HORIZON_S: Final = 2 * 86_400
"""A warning was right if a fault came so soon after it."""
_DAY_S: Final = 86_400.0
_KMSG: Final = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)", re.ASCII)
_DMESG: Final = re.compile(r"\[ *(\d+\.\d+)\] (.*)", re.ASCII)
_ISO: Final = re.compile(r"(\d{4}-\d\d-\d\d[T ]\S+) (\S+) kernel: (?:\[ *[\d.]+\] )?(.*)", re.ASCII)
_UNIX: Final = re.compile(r"(\d{9,11}\.\d+) (\S+) kernel: (.*)", re.ASCII)
_SYSLOG: Final = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (\S+) kernel: (?:\[ *[\d.]+\] )?(.*)", re.ASCII)
_OF_TRACE: Final[Mapping[str, str]] = {
    "GPU DBE(Double Bit ECC) > Threshold": "xid-48",
    "GPU PCI link width low": "pcie-narrow",
    "GPU Lost": MISSING,
    "GPU device not found": MISSING,
}
"""Descriptions that say what one of our signals says."""


@dataclass(frozen=True)
class Entry:
    """One record. ``at``: seconds, of any clock. ``is_fault``: it is known to be one; None: the rules say."""

    at: float
    host: str
    line: KernelLine
    is_fault: bool | None = None


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """A GPU came into a state."""

    at: float
    gpu: str
    state: HealthState
    cause: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """``precision``, ``recall``: shares; null: of nothing. ``lead_s``: the median from a warning to its fault."""

    changes: tuple[StateChange, ...]
    faults: int
    warnings: int
    right: int
    foreseen: int
    precision: float | None
    recall: float | None
    lead_s: float | None


def read_log(text: str) -> Iterator[Entry]:
    """In the order of their times; those of one moment as they stand.

    :raises InvalidInput: ``health.log_unreadable``: nothing in it is a record"""
    is_trace = text.lstrip().startswith("[{") or text.startswith("[\n")
    yield from sorted(_trace(text) if is_trace else _kernel(text), key=lambda entry: entry.at)


def _kernel(text: str) -> Iterator[Entry]:
    lines = [line for line in text.splitlines() if line and not line.startswith("-- ")]  # journalctl's own: No entries
    records = [record for line in lines if (record := _record(line)) is not None]
    if lines and not records:
        raise InvalidInput(
            "health.log_unreadable",
            "no line of it is one of a kernel's log with its time",
            hint="'journalctl -k -o short-iso >kernel.log' on a host writes one",
        )
    for at, host, words in records:
        line = parse_line(words, int(at))
        if line is not None:
            yield Entry(at, host, line)


def _record(record: str) -> tuple[float, str, str] | None:
    """Time, host ("": the only one) and text."""
    if (kmsg := _KMSG.fullmatch(record)) is not None:
        return int(kmsg[1]) / 1e6, "", kmsg[2]
    if (dmesg := _DMESG.fullmatch(record)) is not None:
        return float(dmesg[1]), "", dmesg[2]
    if (unix := _UNIX.fullmatch(record)) is not None:
        return float(unix[1]), unix[2], unix[3]
    try:
        if (iso := _ISO.fullmatch(record)) is not None:
            at = datetime.fromisoformat(iso[1])
            at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)  # noqa: UP017
            return at.timestamp(), iso[2], iso[3]
        if (syslog := _SYSLOG.fullmatch(record)) is not None:  # says no year: one with a 29th of February
            at = datetime.strptime(f"2000 {syslog[1]} +0000", "%Y %b %d %H:%M:%S %z")
            return at.timestamp(), syslog[2], syslog[3]
    except ValueError:
        return None
    return None


def _trace(text: str) -> Iterator[Entry]:
    """Of machines: each counts as one GPU. Faults of other parts are left out."""
    try:
        for event in json.loads(text):
            yield from _event(event)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(
            "health.log_unreadable",
            "it is no trace of faults in JSON",
            details=repr(error),
            hint="each event has node_id, event_time (days), event_type and fault_type",
        ) from error


def _event(event: Mapping[str, Any]) -> Iterator[Entry]:
    kind = event["fault_type"]
    if kind["Class"] != "GPU":
        return
    node, at, described = str(event["node_id"]), float(event["event_time"]) * _DAY_S, str(kind["Desc"])
    if event["event_type"] == "fault_end":
        yield Entry(at, node, KernelLine("GPU", None), False)
    else:
        signal = GpuSignal(name=_OF_TRACE.get(described, "trace-other"), text=described, at=int(at) + 1)
        yield Entry(at, node, KernelLine("GPU", signal), True)


class Replay:
    """Entries are given in the order of their times."""

    def __init__(self, meanings: Meanings) -> None:
        self._meanings = meanings
        self._logged: dict[str, LoggedSignals] = {}
        self._health: dict[tuple[str, str], GpuHealth | None] = {}
        self.changes: list[StateChange] = []
        self.faults: list[tuple[float, str, float | None]] = []
        """When, of which GPU, since when it was on watch then."""
        self._end = 0.0

    def take(self, entry: Entry) -> None:
        """One more."""
        logged = self._logged.setdefault(entry.host, LoggedSignals())
        self._end = max(self._end, entry.at)
        known = list(logged.by_place)
        places = [entry.line.place] if entry.line.place else known
        for place in places:
            self._judge(entry, place, logged)
        if logged.take(entry.line):
            for place in places:
                self._judge(entry, place, logged, is_new=True)

    def _judge(self, entry: Entry, place: str, logged: LoggedSignals, *, is_new: bool = False) -> None:
        key = entry.host, place
        before = self._health.get(key)
        faults = faults_of(tuple(logged.by_place.get(place, {}).values()), self._meanings, vms=SEVERAL)
        gpu = "/".join(filter(None, key))
        if is_new and (is_new_fall(before, faults) if entry.is_fault is None else entry.is_fault):
            on_watch = before is not None and before.state == "watch"
            self.faults.append((entry.at, gpu, before.since if before is not None and on_watch else None))
        after = self._health[key] = next_health(before, faults, entry.at)
        was: HealthState = "healthy" if before is None else before.state
        now: HealthState = "healthy" if after is None else after.state
        if was != now:
            cause = "a day without a fault" if after is None or now == "healthy" else after.cause
            self.changes.append(StateChange(at=entry.at, gpu=gpu, state=now, cause=cause))

    def report(self) -> Report:
        """Of all that was taken. Warnings whose time is not over are left out of the precision."""
        warned = [change for change in self.changes if change.state == "watch" and change.at + HORIZON_S <= self._end]
        right = sum(
            any(gpu == warning.gpu and warning.at < at <= warning.at + HORIZON_S for at, gpu, _ in self.faults)
            for warning in warned
        )
        leads = [at - since for at, _, since in self.faults if since is not None]
        return Report(
            changes=tuple(self.changes),
            faults=len(self.faults),
            warnings=len(warned),
            right=right,
            foreseen=len(leads),
            precision=right / len(warned) if warned else None,
            recall=len(leads) / len(self.faults) if self.faults else None,
            lead_s=median(leads) if leads else None,
        )


def replay_of(entries: Iterable[Entry], meanings: Meanings) -> Report:
    """All of a log."""
    made = Replay(meanings)
    for entry in entries:
        made.take(entry)
    return made.report()
