# SPDX-License-Identifier: Apache-2.0
"""What lines of the kernel log say of GPUs, and what of it is not over. Pure.

Forms: ``NVRM: Xid (PCI:0000:41:00): 79, pid=…`` and ``nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, …``
(NVIDIA's drivers); ``nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), …`` (Linux
drivers/pci/pcie/aer.c; ``Uncorrected`` and no ``AER:`` in older kernels). Of a virtual function only fatal ones count,
and of that function alone: what is not fatal a guest may bring about with what it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.errors import InvalidInput, one_line
from orchestrator.core.gpu.health import (
    MAX_SIGNALS,
    MAX_TEXT,
    RECOVERY,
    SEVERAL,
    WAS_RESET,
    GpuSignal,
    is_well_again,
)
from orchestrator.core.gpu.pci import parse_pci_address

MAX_PLACES: Final = 64
"""GPUs and switches of a host of which signals are kept."""
REFRESHED_S: Final = 3600
_NEW_COUNT_S: Final = 86_400
_PLACE: Final = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?"
_XID: Final = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PLACE}(?: GPU-I:\d+)?\): (\d{{1,4}})\b,? ?(.*)", re.I | re.ASCII)
_SXID: Final = re.compile(
    rf"nvidia-nvswitch\d{{1,3}}: SXid \(PCI:{_PLACE}\): (\d{{1,5}}, (Fatal|Non-fatal)\b.*)", re.I | re.ASCII
)
_AER: Final = re.compile(
    r"(?:nvidia|vfio-pci) ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: "
    r"severity=(Uncorrect(?:ed|able) \(Fatal\)|Uncorrect(?:ed|able) \(Non-Fatal\)|Correct(?:ed|able)), (.*)",
    re.I | re.ASCII,
)
_RESET: Final = re.compile(WAS_RESET.format(gpu=_PLACE), re.I | re.ASCII)
_LOADED: Final = "NVRM: loading NVIDIA UNIX"
_PID: Final = re.compile(r"\bpid='?(\d{1,9})\b", re.ASCII)

Signals = dict[str, dict[str, GpuSignal]]
"""PCI address of a GPU or switch → name → signal, in the order in which they came."""


@dataclass(frozen=True)
class KernelLine:
    """``place``: PCI address of the first function of a GPU or switch, or of a virtual function; empty: all of the
    host."""

    place: str
    signal: GpuSignal | None
    """None: the driver was loaded anew, or the GPU was reset: what was before is over."""


def parse_line(text: str, at: int = 0) -> KernelLine | None:
    """``text``: of one record, without what stands before it in files. None: it says nothing of GPUs."""
    if text.startswith(_LOADED):
        return KernelLine("", None)
    if (reset := _RESET.match(text)) is not None:
        return KernelLine(_address(reset[1]), None)
    if (xid := _XID.match(text)) is not None:
        pid = _PID.search(xid[3])
        pids = () if pid is None else (int(pid[1]),)
        return _signal(xid[1], GpuSignal(name=f"xid-{int(xid[2])}", text=one_line(xid[3], MAX_TEXT), at=at, pids=pids))
    if (sxid := _SXID.match(text)) is not None:
        name = f"sxid-{sxid[3].lower().replace('-', '')}"
        return _signal(sxid[1], GpuSignal(name=name, text=one_line(sxid[2], MAX_TEXT), at=at))
    if (aer := _AER.match(text)) is not None:
        severity = aer[2].lower()
        name = "corrected" if severity.startswith("corr") else "nonfatal" if "non-fatal" in severity else "fatal"
        if name != "fatal" and not aer[1].endswith(".0"):
            return None
        return KernelLine(aer[1].lower(), GpuSignal(name=f"aer-{name}", text=one_line(aer[3], MAX_TEXT), at=at))
    return None


def _signal(place: str, signal: GpuSignal) -> KernelLine:
    return KernelLine(_address(place), signal)


class LoggedSignals:
    """What was said since the host booted and is not over. However often a line comes, it is one signal."""

    def __init__(self, kept: Mapping[str, Iterable[GpuSignal]] | None = None) -> None:
        self.by_place: Signals = {
            place: {_key(signal): signal for signal in signals} for place, signals in (kept or {}).items()
        }

    def take(self, line: KernelLine) -> bool:
        """Whether anything has changed. Lines are given in the order in which they were written."""
        if not line.place:
            changed = bool(self.by_place)
            self.by_place.clear()
            return changed
        if line.signal is None or is_well_again(line.signal):
            return self.by_place.pop(line.place, None) is not None
        return self._saw(line.place, line.signal)

    def _saw(self, place: str, signal: GpuSignal) -> bool:
        if place not in self.by_place and len(self.by_place) >= MAX_PLACES:
            return False
        of_place = self.by_place.setdefault(place, {})
        before = of_place.get(_key(signal))
        if before is None:
            if len(of_place) >= MAX_SIGNALS and signal.name != RECOVERY:
                return False
            of_place[_key(signal)] = signal
            return True
        if signal.name == RECOVERY and before.text != signal.text:
            del of_place[RECOVERY]  # it goes behind those that it is about
            of_place[RECOVERY] = signal
            return True
        after = _again(before, signal)
        of_place[_key(signal)] = after
        return after is not before


def _key(signal: GpuSignal) -> str:
    return f"{signal.name} {signal.function}".strip()


def _again(before: GpuSignal, signal: GpuSignal) -> GpuSignal:
    """The time is told anew at most once an hour; programs are counted anew after a day without it. A time that is long
    before is a new one, too: the host's clock was put back."""
    apart = abs(signal.at - before.at)
    if apart >= _NEW_COUNT_S:
        return replace(before, at=signal.at, pids=signal.pids)
    more = tuple(pid for pid in signal.pids if pid not in before.pids)
    pids = (*before.pids, *more)[:SEVERAL]
    at = signal.at if apart >= REFRESHED_S else before.at
    return before if (at, pids) == (before.at, before.pids) else replace(before, at=at, pids=pids)


def _address(place: str) -> str:
    """Of the first function."""
    try:
        return parse_pci_address(f"{place}.0")
    except InvalidInput:  # a domain that no kernel has
        return place
