# SPDX-License-Identifier: Apache-2.0
"""How GPUs divide their time: set while no vGPU is on one, read back, and as it was once no VM wants it otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.agent.attachments.device_files import check_managed
from orchestrator.agent.attachments.kind import Handlers
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.scheduler import GpuSchedulers
from orchestrator.core.errors import Fatal, VgpuctlError
from orchestrator.core.host_actions import ActionResult
from orchestrator.core.offering import Scheduler
from orchestrator.core.vgpu_scheduler import SchedulerState, is_so, words
from orchestrator.core.vgpu_settings import RestoreVgpuScheduler, SetVgpuScheduler


class Schedulers:
    def __init__(self, ledger: Ledger, driver: GpuSchedulers, check_unused: Callable[[str], None]) -> None:
        """``check_unused``: raises ``gpu.in_use`` with what is on a GPU."""
        self._ledger, self._records, self._driver, self._check_unused = ledger, ledger.schedulers, driver, check_unused
        self._locks: dict[str, threading.Lock] = {}

    @property
    def handlers(self) -> Handlers:
        return {SetVgpuScheduler: self.set, RestoreVgpuScheduler: self.restore}

    def set(self, action: SetVgpuScheduler) -> ActionResult:
        """:raises Conflict: ``gpu.in_use``; :raises Fatal: ``gpu.no_scheduler``, ``gpu.scheduler_refused``"""
        gpu, wanted = action.gpu, action.wanted
        check_managed(self._ledger, gpu)
        with self._alone(gpu):
            now = self._driver.state(gpu)
            if now is None:
                raise Fatal(
                    "gpu.no_scheduler",
                    f"the driver of GPU {gpu} lets nobody choose how its time is divided",
                    hint="it does not in MIG mode, and on GPUs before Pascal",
                )
            if is_so(wanted, now):
                self._records.want(gpu, action.vm, now)
                return ActionResult(changed=False)
            self._check_unused(gpu)
            self._records.want(gpu, action.vm, now)
            try:
                self._driver.set(gpu, wanted)
                self._check_taken(gpu, wanted)
            except VgpuctlError:
                self._leave(gpu, action.vm)
                raise
        return ActionResult(changed=True)

    def restore(self, action: RestoreVgpuScheduler) -> ActionResult:
        """What keeps it from being as before (somebody else's vGPU, a driver that is not loaded) keeps no VM from
        being stopped: it is tried again when the GPU is given back."""
        with self._alone(action.gpu):
            before = self._records.before(action.gpu)
            changed = self._leave(action.gpu, action.vm)
        kept = before is not None and self._records.before(action.gpu) is not None
        return ActionResult(changed=changed, message="the GPU's scheduler stays as it is for now" if kept else "")

    def put_back(self, gpu: str) -> None:
        """As it was before we changed it. :raises VgpuctlError: as :meth:`set`"""
        with self._alone(gpu):
            before = self._records.before(gpu)
            if before is not None:
                self._restore(gpu, before)

    def _leave(self, gpu: str, vm: str) -> bool:
        """Whether the GPU is another one now."""
        before = self._records.before(gpu)
        if self._records.want_no_more(gpu, vm) or before is None:
            return False
        try:
            return self._restore(gpu, before)
        except VgpuctlError:
            return False

    def _restore(self, gpu: str, before: SchedulerState) -> bool:
        now = self._driver.state(gpu)
        differs = now is not None and now != before and before.policy != "unknown"
        if differs:
            self._check_unused(gpu)
            self._driver.put(gpu, before)
        self._records.forget(gpu)
        return differs

    def _check_taken(self, gpu: str, wanted: Scheduler) -> None:
        now = self._driver.state(gpu)
        if now is None or not is_so(wanted, now):
            raise Fatal(
                "gpu.scheduler_refused",
                f"GPU {gpu} does not divide its time as it was told",
                hint="read the NVRM lines of the host's kernel log",
                details=f"asked for {words(wanted)}, it says {'nothing' if now is None else now.words}",
            )

    @contextmanager
    def _alone(self, gpu: str) -> Iterator[None]:
        """One change of a GPU's scheduler at a time."""
        with self._locks.setdefault(gpu, threading.Lock()):
            yield
