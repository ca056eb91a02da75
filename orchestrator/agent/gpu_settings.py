# SPDX-License-Identifier: Apache-2.0
"""Settings of GPUs that a driver changes only while no vGPU is there: one table of what each is called, read and
written as, and of what is asked for. Each is set for VMs, read back, and as before once no VM wants it otherwise.

The driver forgets a GPU's settings whenever it lets go of the GPU, so what it was before holds for one loading.
Parameters of vGPUs are one line in one file of each, written whole while no VM has the vGPU, and read back. The driver
lets no single one go: a blank clears all of them, and then they are written anew. They go with the vGPU, and hold from
its VM's next start on.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.kind import Handlers, Kinds
from orchestrator.agent.ledger_file import LedgerFile
from orchestrator.agent.sysfs import reading
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.vgpu_settings import (
    ClearVgpuParameters,
    RestoreGpuSetting,
    RestoreMixedSizes,
    RestoreVgpuScheduler,
    SetGpuSetting,
    SetMixedSizes,
    SetVgpuParameters,
    SetVgpuScheduler,
)
from orchestrator.core.errors import Conflict, Fatal, VgpuctlError
from orchestrator.core.gpu.vgpu_parameters import SchedulerState, is_so

S = TypeVar("S")


class SettingDriver(Protocol[S]):
    """One setting as the driver has it. Errors are those of agent/nvml/gpu_settings.py."""

    def read(self, gpu: str) -> S | None:
        """None: the GPU has none that could be chosen."""

    def write(self, gpu: str, state: S) -> None:
        """Refused while a vGPU is on the GPU. Read it again."""


@dataclass(frozen=True, kw_only=True)
class SettingDrivers:
    schedulers: SettingDriver[SchedulerState]
    mixed_sizes: SettingDriver[bool]


class SettingRecords(Protocol):
    """Who wants a setting otherwise, and what it was before, as text."""

    def before(self, gpu: str) -> str | None:
        """None: since the driver was loaded we have not changed it."""

    def want(self, gpu: str, vm: str, now: str) -> None:
        """The VM wants it. ``now``: what it is to be again once nobody does, unless that is known."""

    def want_no_more(self, gpu: str, vm: str) -> bool:
        """Whether another VM still does."""

    def forget(self, gpu: str) -> None:
        """It is as before."""


RecordsOf = Callable[[str, str], SettingRecords]
"""By the names of a setting's two tables."""


@dataclass(frozen=True)
class GpuChecks:
    """What is asked of a GPU before it is set."""

    is_ours: Callable[[str], None]
    """:raises Denied: ``gpu.not_managed``"""
    is_unused: Callable[[str], None]
    """:raises Conflict: ``gpu.in_use`` with what is on it"""


@dataclass(frozen=True, kw_only=True)
class _Row(Generic[S]):
    """``S``: what the driver says of the setting."""

    actions: tuple[type[SetGpuSetting], type[RestoreGpuSetting]]
    driver: SettingDriver[S]
    tables: tuple[str, str]
    """Of the ledger: GPUs with what they were before, and the VMs that want them otherwise."""
    default: S
    """What it is when the driver has just taken the GPU."""
    wanted: Callable[[Any], S]
    """As an action asks for it."""
    is_so: Callable[[Any, S], bool]
    """Whether a GPU is as an action asks."""
    to_text: Callable[[S], str]
    from_text: Callable[[str], S]
    can_be_written: Callable[[S], bool]
    words: Callable[[S], str]
    """For people."""
    missing: tuple[str, str, str]
    """Code, message and hint where a GPU has no such setting; {} is the GPU."""
    refused: tuple[str, str]
    """Code and message where it was written and is otherwise."""
    stays: str
    """For people, where it could not be put back yet."""


def _table(drivers: SettingDrivers) -> tuple[_Row[Any], ...]:
    return (
        _Row[SchedulerState](
            actions=(SetVgpuScheduler, RestoreVgpuScheduler),
            driver=drivers.schedulers,
            tables=("schedulers", "scheduler_users"),
            default=SchedulerState(policy="best_effort", time_slice_us=None),
            wanted=lambda action: SchedulerState.of(action.wanted),
            is_so=lambda action, now: is_so(action.wanted, now),
            to_text=lambda state: json.dumps(asdict(state)),
            from_text=lambda text: SchedulerState(**json.loads(text)),
            can_be_written=lambda state: state.policy != "unknown",
            words=lambda state: state.words,
            missing=(
                "gpu.no_scheduler",
                "the driver of GPU {} lets nobody choose how its time is divided",
                "it does not in MIG mode, and on GPUs before Pascal",
            ),
            refused=("gpu.scheduler_refused", "GPU {} does not divide its time as it was told"),
            stays="the GPU's scheduler stays as it is for now",
        ),
        _Row[bool](
            actions=(SetMixedSizes, RestoreMixedSizes),
            driver=drivers.mixed_sizes,
            tables=("mixed_sizes", "mixed_sizes_users"),
            default=False,
            wanted=lambda _action: True,
            is_so=lambda _action, now: now,
            to_text=lambda state: str(int(state)),
            from_text=lambda text: text == "1",
            can_be_written=lambda _state: True,
            words=lambda state: "several sizes" if state else "one size",
            missing=(
                "gpu.no_mixed_sizes",
                "the driver mixes no vGPU sizes on GPU {}",
                "it takes vGPU 17 or later, and a GPU of Ampere or later that is not in MIG mode",
            ),
            # It loses it without a word when virtual functions are switched.
            refused=("gpu.mixed_sizes_refused", "GPU {} took the order to mix vGPU sizes and does not"),
            stays="the GPU goes on taking vGPUs of several sizes for now",
        ),
    )


class GpuSettings:
    def __init__(self, drivers: SettingDrivers, records_of: RecordsOf, checks: GpuChecks) -> None:
        self._settings = {
            row.actions[0]: _GpuSetting(row, records_of(*row.tables), checks) for row in _table(drivers)
        }  # fmt: skip

    @property
    def handlers(self) -> dict[type[HostAction], Callable[[Any], ActionResult]]:
        handlers: dict[type[HostAction], Callable[[Any], ActionResult]] = {}
        for setting in self._settings.values():
            set_by, undone_by = setting.actions
            handlers |= {set_by: setting.set, undone_by: setting.restore}
        return handlers

    def settle(self, action: SetGpuSetting) -> None:
        """Write down again that the VM wants it otherwise. What it was before is taken to be the driver's default."""
        self._settings[type(action)].settle(action.gpu, action.vm)

    def put_back(self, gpu: str) -> None:
        """All as before we changed them. :raises VgpuctlError: the driver's, ``gpu.in_use``"""
        for setting in self._settings.values():
            setting.put_back(gpu)


class _GpuSetting:
    """One of them, on all GPUs of the host."""

    def __init__(self, row: _Row[Any], records: SettingRecords, checks: GpuChecks) -> None:
        self._row, self._records, self._checks = row, records, checks
        self._locks: dict[str, threading.Lock] = {}

    @property
    def actions(self) -> tuple[type[SetGpuSetting], type[RestoreGpuSetting]]:
        """What sets it, and what undoes that."""
        return self._row.actions

    def set(self, action: SetGpuSetting) -> ActionResult:
        """:raises Conflict: ``gpu.in_use``; :raises Fatal: what the row calls missing and refused"""
        gpu, row = action.gpu, self._row
        self._checks.is_ours(gpu)
        with self._alone(gpu):
            now = row.driver.read(gpu)
            if now is None:
                code, message, hint = row.missing
                raise Fatal(code, message.format(gpu), hint=hint)
            if row.is_so(action, now):
                self._records.want(gpu, action.vm, row.to_text(now))
                return ActionResult(changed=False)
            self._checks.is_unused(gpu)
            self._records.want(gpu, action.vm, row.to_text(now))
            try:
                row.driver.write(gpu, row.wanted(action))
                self._check_taken(action)
            except VgpuctlError:
                self._leave(gpu, action.vm)
                raise
        return ActionResult(changed=True)

    def restore(self, action: RestoreGpuSetting) -> ActionResult:
        """What keeps it from being as before (somebody else's vGPU, a driver that is not loaded) keeps no VM from
        being stopped: it is tried again when the GPU is given back."""
        gpu = action.gpu
        with self._alone(gpu):
            before = self._records.before(gpu)
            changed = self._leave(gpu, action.vm)
        kept = before is not None and self._records.before(gpu) is not None
        return ActionResult(changed=changed, message=self._row.stays if kept else "")

    def settle(self, gpu: str, vm: str) -> None:
        with self._alone(gpu):
            self._records.want(gpu, vm, self._row.to_text(self._row.default))

    def put_back(self, gpu: str) -> None:
        with self._alone(gpu):
            before = self._records.before(gpu)
            if before is not None:
                self._write_back(gpu, before)

    def _check_taken(self, action: SetGpuSetting) -> None:
        now = self._row.driver.read(action.gpu)
        if now is None or not self._row.is_so(action, now):
            code, message = self._row.refused
            raise Fatal(
                code,
                message.format(action.gpu),
                hint="read the NVRM lines of the host's kernel log",
                details=f"asked for {action.words}, it says {'nothing' if now is None else self._row.words(now)}",
            )

    def _leave(self, gpu: str, vm: str) -> bool:
        """Whether the GPU is another one now."""
        before = self._records.before(gpu)
        if self._records.want_no_more(gpu, vm) or before is None:
            return False
        try:
            return self._write_back(gpu, before)
        except VgpuctlError:
            return False

    def _write_back(self, gpu: str, text: str) -> bool:
        before, now = self._row.from_text(text), self._row.driver.read(gpu)
        differs = now not in (None, before) and self._row.can_be_written(before)
        if differs:
            self._checks.is_unused(gpu)
            self._row.driver.write(gpu, before)
        self._records.forget(gpu)
        return differs

    @contextmanager
    def _alone(self, gpu: str) -> Iterator[None]:
        """One change of a GPU's setting at a time."""
        with self._locks.setdefault(gpu, threading.Lock()):
            yield


class LedgerRecords:
    """In the ledger's file."""

    def __init__(self, file: LedgerFile, boot_id: str, table: str, users: str) -> None:
        """``table``: of GPUs, ``users``: of the VMs that want it."""
        self._file, self._boot_id = file, boot_id
        self._table, self._users = table, users

    def before(self, gpu: str) -> str | None:
        with self._file.read():
            query = f"SELECT before FROM {self._table} WHERE gpu = ? AND boot_id = ?"  # noqa: S608 - our own names
            row = self._file.one(query, gpu, self._boot_id)
        return None if row is None else str(row[0])

    def want(self, gpu: str, vm: str, now: str) -> None:
        with self._file.write():
            self._file.run(f"DELETE FROM {self._table} WHERE gpu = ? AND boot_id != ?", (gpu, self._boot_id))  # noqa: S608
            new = f"INSERT OR IGNORE INTO {self._table} (gpu, boot_id, before) VALUES (?, ?, ?)"  # noqa: S608
            self._file.run(new, (gpu, self._boot_id, now))
            self._file.run(f"INSERT OR IGNORE INTO {self._users} (gpu, vm) VALUES (?, ?)", (gpu, vm))  # noqa: S608

    def want_no_more(self, gpu: str, vm: str) -> bool:
        with self._file.write():
            self._file.run(f"DELETE FROM {self._users} WHERE gpu = ? AND vm = ?", (gpu, vm))  # noqa: S608
            return self._file.one(f"SELECT vm FROM {self._users} WHERE gpu = ?", gpu) is not None  # noqa: S608

    def forget(self, gpu: str) -> None:
        with self._file.write():
            self._file.run(f"DELETE FROM {self._table} WHERE gpu = ?", (gpu,))  # noqa: S608


_BETWEEN = re.compile(r"[\s,]+")


@dataclass(frozen=True)
class VgpuParameterFiles:
    files: DeviceFiles
    kinds: Kinds

    @property
    def handlers(self) -> Handlers:
        return {SetVgpuParameters: self.set, ClearVgpuParameters: self.clear}

    def set(self, action: SetVgpuParameters) -> ActionResult:
        """:raises Conflict: ``vgpu.foreign``, ``vgpu.in_use``; :raises Fatal: ``vgpu.parameters_refused``"""
        file = self._file_of(action.vm, action.name)
        if file is None:
            raise Conflict("vgpu.foreign", "the vGPU there is not this VM's", hint="look at the host")
        return ActionResult(changed=self._write(file, action.text, action.name))

    def clear(self, action: ClearVgpuParameters) -> ActionResult:
        """Of a vGPU that is gone, or another VM's by now, there are none. :raises Conflict: ``vgpu.in_use``"""
        file = self._file_of(action.vm, action.name)
        changed = file is not None and reading.text(file) is not None and self._write(file, "", action.name)
        return ActionResult(changed=changed)

    def _file_of(self, vm: str, name: str) -> Path | None:
        return next((kind.parameters_file(name) for kind in self.kinds.values() if kind.owner_of(name) == vm), None)

    def _write(self, file: Path, text: str, shown: str) -> bool:
        current = _pairs(file)
        if current == _split(text):
            return False
        self.files.check_unused(file.parents[1], shown)
        if current:
            self.files.write_file(file, " ")
        if text:
            self.files.write_file(file, text)
        if _pairs(file) != _split(text):
            raise Fatal(
                "vgpu.parameters_refused",
                "the driver does not have the vGPU's parameters as they were written",
                hint="the offering asks for what this driver or vGPU type lacks: read the NVRM lines of the host's log",
                details=f"{shown}: wrote {text or 'none'!r}, reads {reading.text(file)!r}",
            )
        return True


def _pairs(file: Path) -> frozenset[str] | None:
    """None: it cannot be read."""
    text = reading.text(file)
    return None if text is None else _split(text)


def _split(text: str) -> frozenset[str]:
    return frozenset(pair for pair in _BETWEEN.split(text) if pair)
