# SPDX-License-Identifier: Apache-2.0
"""What the NVIDIA driver wrote of its GPUs in the kernel log since the host booted, and what of it is over.

Linux Documentation/ABI/testing/dev-kmsg: a read gives one record, ``priority,sequence,microseconds,…;text``; EPIPE:
records were overwritten before they were read. What was read is in the ledger's file, as the log forgets.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs.machine import boot_id, driver_epoch
from orchestrator.core.errors import Fatal, InvalidInput, one_line
from orchestrator.core.gpu.health import MAX_SIGNALS, MAX_TEXT, RECOVERY, WAS_RESET, GpuSignal, is_well_again
from orchestrator.core.gpu.pci import parse_pci_address

_KEY: Final = "kernel log"
_MAX_GPUS: Final = 64
_RECORD_BYTES: Final = 8192
_RECORDS_AT_ONCE: Final = 100_000
_TOLD_ANEW_S: Final = 3600
_RECORD: Final = re.compile(r"\d{1,10},(\d{1,20}),(\d{1,20}),[^;]{0,200};(.*)", re.ASCII | re.DOTALL)
_PLACE: Final = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?"
_XID: Final = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PLACE}(?: GPU-I:\d+)?\): (\d{{1,4}})\b,? ?(.*)", re.I | re.ASCII)
_RESET: Final = re.compile(WAS_RESET.format(gpu=_PLACE), re.I | re.ASCII)
_LOADED: Final = "NVRM: loading NVIDIA UNIX"

Signals = dict[str, dict[str, GpuSignal]]
"""GPU → name → signal, in the order in which they came."""


class KernelLog:
    """Safe to read from many threads; each record is read once."""

    def __init__(self, paths: Paths, ledger: Ledger) -> None:
        self._paths, self._ledger = paths, ledger
        self._lock = threading.Lock()
        self._file: int | None = None
        self._rest = b""
        self._counts: dict[str, Counter[int]] = {}
        """GPU → Xid → how often this agent has read it."""
        self._read, self._signals = _kept(paths, ledger)

    def signals(self) -> dict[str, tuple[GpuSignal, ...]]:
        """GPU → what is not over. Nothing where the log cannot be read."""
        with self._lock:
            before, read = {gpu: dict(of_gpu) for gpu, of_gpu in self._signals.items()}, self._read
            for sequence, at, text in self._records():
                if sequence > read:
                    self._read = sequence
                    self._take(at, text)
            if self._signals != before:
                self._keep()
            return {gpu: tuple(of_gpu.values()) for gpu, of_gpu in self._signals.items()}

    def xid_counts(self) -> dict[str, Mapping[int, int]]:
        """GPU → Xid → how often it has come since this agent began; each of them only grows."""
        self.signals()
        with self._lock:
            return {gpu: dict(counts) for gpu, counts in self._counts.items()}

    def _take(self, at: int, text: str) -> None:
        xid, reset = _XID.match(text), _RESET.match(text)
        if text.startswith(_LOADED):
            self._signals.clear()
        elif reset is not None:
            self._signals.pop(_address(reset[1]), None)
        elif xid is not None:
            signal = GpuSignal(name=f"xid-{int(xid[2])}", text=one_line(xid[3], MAX_TEXT), at=at)
            self._count(_address(xid[1]), int(xid[2]))
            self._saw(_address(xid[1]), signal)

    def _count(self, gpu: str, xid: int) -> None:
        """Bounded as signals are."""
        if gpu in self._counts or len(self._counts) < _MAX_GPUS:
            counts = self._counts.setdefault(gpu, Counter())
            if xid in counts or len(counts) < MAX_SIGNALS:
                counts[xid] += 1

    def _saw(self, gpu: str, signal: GpuSignal) -> None:
        """However often it comes, it is one signal."""
        if is_well_again(signal):
            self._signals.pop(gpu, None)
            return
        if gpu not in self._signals and len(self._signals) >= _MAX_GPUS:
            return
        of_gpu = self._signals.setdefault(gpu, {})
        before = of_gpu.get(signal.name)
        if signal.name == RECOVERY and before is not None and before.text != signal.text:
            del of_gpu[RECOVERY]  # it goes behind those that it is about
            of_gpu[RECOVERY] = signal
        elif before is not None and signal.at >= before.at + _TOLD_ANEW_S:
            of_gpu[signal.name] = replace(before, at=signal.at)
        elif before is None and (len(of_gpu) < MAX_SIGNALS or signal.name == RECOVERY):
            of_gpu[signal.name] = signal

    def _records(self) -> Iterator[tuple[int, int, str]]:
        """(sequence, seconds since the epoch, text) of what was written since the last call."""
        booted = time.time() - time.monotonic()
        for _ in range(_RECORDS_AT_ONCE):
            try:
                if self._file is None:
                    self._file = os.open(self._paths.kernel_log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                read = os.read(self._file, _RECORD_BYTES)
            except BrokenPipeError:
                continue
            except OSError:  # nothing more for now, or no log
                return
            if not read:
                return
            *lines, self._rest = (self._rest + read).split(b"\n")
            for line in lines:
                record = _RECORD.fullmatch(line.decode(errors="replace"))
                if record is not None:
                    yield int(record[1]), int(booted + int(record[2]) / 1e6), record[3]

    def _keep(self) -> None:
        document = {
            "boot": boot_id(self._paths), "driver": driver_epoch(self._paths), "read": self._read,
            "signals": {gpu: [asdict(signal) for signal in of_gpu.values()] for gpu, of_gpu in self._signals.items()},
        }  # fmt: skip
        with suppress(Fatal):  # a disk that cannot be written to costs no observation
            self._ledger.claim(_KEY, "", detail=json.dumps(document, separators=(",", ":")))


def _kept(paths: Paths, ledger: Ledger) -> tuple[int, Signals]:
    """What a former agent had read in this boot. The driver of another one held nothing of the GPUs' faults."""
    owner = ledger.owner(_KEY)
    document: dict[str, Any] = {} if owner is None else json.loads(owner.detail)
    if document.get("boot") != boot_id(paths):
        return -1, {}
    if document["driver"] != driver_epoch(paths):
        return document["read"], {}
    try:
        read = {gpu: [GpuSignal(**signal) for signal in of_gpu] for gpu, of_gpu in document["signals"].items()}
    except TypeError:  # a newer agent wrote it
        return -1, {}
    return document["read"], {gpu: {signal.name: signal for signal in of_gpu} for gpu, of_gpu in read.items()}


def _address(place: str) -> str:
    """Of the GPU's own function."""
    try:
        return parse_pci_address(f"{place}.0")
    except InvalidInput:  # a domain that no kernel has
        return place
