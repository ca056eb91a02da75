# SPDX-License-Identifier: Apache-2.0
"""What drivers and PCIe wrote of GPUs in the kernel log since the host booted, and what of it is over.

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
from orchestrator.agent.sysfs.pci import gpu_drivers, physical_gpu
from orchestrator.core.errors import Fatal
from orchestrator.core.gpu.health import MAX_SIGNALS, GpuSignal
from orchestrator.core.gpu.kernel_lines import MAX_PLACES, KernelLine, LoggedSignals, parse_line

_KEY: Final = "kernel log"
_RECORD_BYTES: Final = 8192
_RECORDS_AT_ONCE: Final = 100_000
_RECORD: Final = re.compile(r"\d{1,10},(\d{1,20}),(\d{1,20}),[^;]{0,200};(.*)", re.ASCII | re.DOTALL)


class KernelLog:
    """Safe to read from many threads; each record is read once."""

    def __init__(self, paths: Paths, ledger: Ledger) -> None:
        self._paths, self._ledger = paths, ledger
        self._lock = threading.Lock()
        self._file: int | None = None
        self._rest = b""
        self._counts: dict[str, Counter[int]] = {}
        """GPU → Xid → how often this agent has read it."""
        self._gpus: frozenset[str] | None = None
        """Those on the bus, read at most once a look."""
        self._read, self._logged = _kept(paths, ledger)

    def signals(self) -> dict[str, tuple[GpuSignal, ...]]:
        """GPU → what is not over. Nothing where the log cannot be read."""
        with self._lock:
            changed, self._gpus = False, None
            for sequence, at, text in self._records():
                if sequence > self._read:
                    self._read = sequence
                    changed = self._take(at, text) or changed
            if changed:
                self._keep()
            return {gpu: tuple(of_gpu.values()) for gpu, of_gpu in self._logged.by_place.items()}

    def xid_counts(self) -> dict[str, Mapping[int, int]]:
        """GPU → Xid → how often it has come since this agent began; each of them only grows."""
        self.signals()
        with self._lock:
            return {gpu: dict(counts) for gpu, counts in self._counts.items()}

    def _take(self, at: int, text: str) -> bool:
        """Whether anything has changed."""
        line = parse_line(text, at)
        if line is None:
            return False
        name = "" if line.signal is None else line.signal.name
        if name.startswith("aer-"):
            gpu = physical_gpu(self._paths, line.place)
            if not self._is_gpu(gpu) or (gpu != line.place and name != "aer-fatal"):
                return False  # vfio-pci has other devices, too
            line = _of_gpu(line, gpu)
        if name.startswith("xid-"):
            self._count(line.place, int(name.removeprefix("xid-")))
        return self._logged.take(line)

    def _is_gpu(self, place: str) -> bool:
        if self._gpus is None:
            self._gpus = frozenset(gpu_drivers(self._paths))
        return place in self._gpus

    def _count(self, gpu: str, xid: int) -> None:
        """Bounded as signals are."""
        if gpu in self._counts or len(self._counts) < MAX_PLACES:
            counts = self._counts.setdefault(gpu, Counter())
            if xid in counts or len(counts) < MAX_SIGNALS:
                counts[xid] += 1

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
            "signals": {
                gpu: [asdict(signal) for signal in of_gpu.values()] for gpu, of_gpu in self._logged.by_place.items()
            },
        }  # fmt: skip
        with suppress(Fatal):  # a disk that cannot be written to costs no observation
            self._ledger.claim(_KEY, "", detail=json.dumps(document, separators=(",", ":")))


def _of_gpu(line: KernelLine, gpu: str) -> KernelLine:
    """What is said of a virtual function is told of its ``gpu``, and of that function alone."""
    if line.signal is None or line.place == gpu:
        return line
    return KernelLine(gpu, replace(line.signal, function=line.place))


def _kept(paths: Paths, ledger: Ledger) -> tuple[int, LoggedSignals]:
    """What a former agent had read in this boot. The driver of another one held nothing of the GPUs' faults."""
    owner = ledger.owner(_KEY)
    document: dict[str, Any] = {} if owner is None else json.loads(owner.detail)
    if document.get("boot") != boot_id(paths):
        return -1, LoggedSignals()
    if document["driver"] != driver_epoch(paths):
        return document["read"], LoggedSignals()
    try:
        return document["read"], LoggedSignals(
            {
                gpu: [GpuSignal(**{**signal, "pids": tuple(signal.get("pids", ()))}) for signal in of_gpu]
                for gpu, of_gpu in document["signals"].items()
            }
        )
    except TypeError:  # a newer agent wrote it
        return -1, LoggedSignals()
