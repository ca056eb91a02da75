# SPDX-License-Identifier: Apache-2.0
"""A setting of a GPU that its driver changes only while no vGPU is on it: set for VMs, read back, and as it was once no
VM wants it otherwise."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from orchestrator.agent.setting_records import SettingRecords
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import VgpuctlError

S = TypeVar("S")


class Settable(Protocol[S]):
    """What is asked of the driver."""

    def state(self, gpu: str) -> S | None:
        """None: it has none that could be chosen."""

    def put(self, gpu: str, before: S) -> None:
        """As it was observed once. Refused while a vGPU is on it."""


class GpuSetting(ABC, Generic[S]):
    """``S``: what the driver says of the setting."""

    stays: str
    """For people, where it could not be put back yet."""
    default: S
    """What it is when the driver has just taken the GPU."""

    def __init__(self, records: SettingRecords, driver: Settable[S], check_unused: Callable[[str], None]) -> None:
        """``check_unused``: raises ``gpu.in_use`` with what is on a GPU."""
        self._records, self._settable, self._check_unused = records, driver, check_unused
        self._locks: dict[str, threading.Lock] = {}

    @abstractmethod
    def to_text(self, state: S) -> str:
        """As the ledger keeps it."""

    @abstractmethod
    def from_text(self, text: str) -> S:
        """The inverse."""

    def can_be_put(self, before: S) -> bool:
        """Whether the driver takes it."""
        return True

    def settle(self, gpu: str, vm: str) -> None:
        """Write down again that the VM wants it otherwise. What it was before is taken to be the driver's default."""
        with self._alone(gpu):
            self._want(gpu, vm, self.default)

    def put_back(self, gpu: str) -> None:
        """As it was before we changed it. :raises VgpuctlError: the driver's, ``gpu.in_use``"""
        with self._alone(gpu):
            before = self._records.before(gpu)
            if before is not None:
                self._put(gpu, self.from_text(before))

    def _want(self, gpu: str, vm: str, now: S) -> None:
        self._records.want(gpu, vm, self.to_text(now))

    def _want_no_more(self, gpu: str, vm: str) -> ActionResult:
        """What keeps it from being as before (somebody else's vGPU, a driver that is not loaded) keeps no VM from
        being stopped: it is tried again when the GPU is given back."""
        with self._alone(gpu):
            before = self._records.before(gpu)
            changed = self._leave(gpu, vm)
        kept = before is not None and self._records.before(gpu) is not None
        return ActionResult(changed=changed, message=self.stays if kept else "")

    def _leave(self, gpu: str, vm: str) -> bool:
        """Whether the GPU is another one now."""
        before = self._records.before(gpu)
        if self._records.want_no_more(gpu, vm) or before is None:
            return False
        try:
            return self._put(gpu, self.from_text(before))
        except VgpuctlError:
            return False

    def _put(self, gpu: str, before: S) -> bool:
        now = self._settable.state(gpu)
        differs = now is not None and now != before and self.can_be_put(before)
        if differs:
            self._check_unused(gpu)
            self._settable.put(gpu, before)
        self._records.forget(gpu)
        return differs

    @contextmanager
    def _alone(self, gpu: str) -> Iterator[None]:
        """One change of a GPU's setting at a time."""
        with self._locks.setdefault(gpu, threading.Lock()):
            yield
