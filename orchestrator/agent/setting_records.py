# SPDX-License-Identifier: Apache-2.0
"""Which VMs want a setting of their GPU to be another one, and what it was before."""

from __future__ import annotations

from orchestrator.agent.ledger_file import LedgerFile


class SettingRecords:
    """In the ledger's file, of one setting. The driver forgets a GPU's settings whenever it lets go of the GPU."""

    def __init__(self, file: LedgerFile, boot_id: str, *, table: str, users: str) -> None:
        """``table``: of GPUs, ``users``: of the VMs that want it."""
        self._file, self._boot_id = file, boot_id
        self._table, self._users = table, users

    def before(self, gpu: str) -> str | None:
        """None: since the driver was loaded we have not changed it."""
        with self._file.read():
            query = f"SELECT before FROM {self._table} WHERE gpu = ? AND boot_id = ?"  # noqa: S608 - our own names
            row = self._file.one(query, gpu, self._boot_id)
        return None if row is None else str(row[0])

    def want(self, gpu: str, vm: str, now: str) -> None:
        """The VM wants it. ``now``: what it is to be again once nobody does, unless that is known."""
        with self._file.write():
            self._file.run(f"DELETE FROM {self._table} WHERE gpu = ? AND boot_id != ?", (gpu, self._boot_id))  # noqa: S608
            new = f"INSERT OR IGNORE INTO {self._table} (gpu, boot_id, before) VALUES (?, ?, ?)"  # noqa: S608
            self._file.run(new, (gpu, self._boot_id, now))
            self._file.run(f"INSERT OR IGNORE INTO {self._users} (gpu, vm) VALUES (?, ?)", (gpu, vm))  # noqa: S608

    def want_no_more(self, gpu: str, vm: str) -> bool:
        """Whether another VM still does."""
        with self._file.write():
            self._file.run(f"DELETE FROM {self._users} WHERE gpu = ? AND vm = ?", (gpu, vm))  # noqa: S608
            return self._file.one(f"SELECT vm FROM {self._users} WHERE gpu = ?", gpu) is not None  # noqa: S608

    def forget(self, gpu: str) -> None:
        """It is as before."""
        with self._file.write():
            self._file.run(f"DELETE FROM {self._table} WHERE gpu = ?", (gpu,))  # noqa: S608
