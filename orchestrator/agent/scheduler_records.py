# SPDX-License-Identifier: Apache-2.0
"""Which VMs want their GPU to divide its time in a way of their own, and how it did before."""

from __future__ import annotations

import json
from dataclasses import asdict

from orchestrator.agent.ledger_file import LedgerFile
from orchestrator.core.vgpu_scheduler import SchedulerState


class SchedulerRecords:
    """In the ledger's file. The driver forgets a GPU's scheduler whenever it lets go of the GPU."""

    def __init__(self, file: LedgerFile, boot_id: str) -> None:
        self._file, self._boot_id = file, boot_id

    def before(self, gpu: str) -> SchedulerState | None:
        """None: since the driver was loaded we have not changed it."""
        with self._file.read():
            row = self._file.one("SELECT before FROM schedulers WHERE gpu = ? AND boot_id = ?", gpu, self._boot_id)
        return None if row is None else SchedulerState(**json.loads(str(row[0])))

    def want(self, gpu: str, vm: str, now: SchedulerState) -> None:
        """The VM wants it. ``now``: what it is to be again once nobody does, unless that is known."""
        with self._file.write():
            self._file.run("DELETE FROM schedulers WHERE gpu = ? AND boot_id != ?", (gpu, self._boot_id))
            row = (gpu, self._boot_id, json.dumps(asdict(now)))
            self._file.run("INSERT OR IGNORE INTO schedulers (gpu, boot_id, before) VALUES (?, ?, ?)", row)
            self._file.run("INSERT OR IGNORE INTO scheduler_users (gpu, vm) VALUES (?, ?)", (gpu, vm))

    def want_no_more(self, gpu: str, vm: str) -> bool:
        """Whether another VM still does."""
        with self._file.write():
            self._file.run("DELETE FROM scheduler_users WHERE gpu = ? AND vm = ?", (gpu, vm))
            return self._file.one("SELECT vm FROM scheduler_users WHERE gpu = ?", gpu) is not None

    def forget(self, gpu: str) -> None:
        """It is as before."""
        with self._file.write():
            self._file.run("DELETE FROM schedulers WHERE gpu = ?", (gpu,))
