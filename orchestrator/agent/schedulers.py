# SPDX-License-Identifier: Apache-2.0
"""How GPUs divide their time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from orchestrator.agent.attachments.device_files import check_ours
from orchestrator.agent.attachments.kind import Handlers
from orchestrator.agent.gpu_setting import GpuSetting
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.scheduler import GpuSchedulers
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.vgpu_settings import RestoreVgpuScheduler, SetVgpuScheduler
from orchestrator.core.errors import Fatal, VgpuctlError
from orchestrator.core.gpu.scheduler import SchedulerState, is_so, words
from orchestrator.core.gpu.vgpu_parameters import Scheduler


class Schedulers(GpuSetting[SchedulerState]):
    stays = "the GPU's scheduler stays as it is for now"
    default = SchedulerState(policy="best_effort", time_slice_us=None)

    def __init__(self, ledger: Ledger, driver: GpuSchedulers, check_unused: Callable[[str], None]) -> None:
        """``check_unused``: raises ``gpu.in_use`` with what is on a GPU."""
        super().__init__(ledger.schedulers, driver, check_unused)
        self._ledger, self._driver = ledger, driver

    @property
    def handlers(self) -> Handlers:
        return {SetVgpuScheduler: self.set, RestoreVgpuScheduler: lambda a: self._want_no_more(a.gpu, a.vm)}

    def to_text(self, state: SchedulerState) -> str:
        return json.dumps(asdict(state))

    def from_text(self, text: str) -> SchedulerState:
        return SchedulerState(**json.loads(text))

    def can_be_put(self, before: SchedulerState) -> bool:
        return before.policy != "unknown"

    def set(self, action: SetVgpuScheduler) -> ActionResult:
        """:raises Conflict: ``gpu.in_use``; :raises Fatal: ``gpu.no_scheduler``, ``gpu.scheduler_refused``"""
        gpu, wanted = action.gpu, action.wanted
        check_ours(self._ledger, gpu)
        with self._alone(gpu):
            now = self._driver.state(gpu)
            if now is None:
                raise Fatal(
                    "gpu.no_scheduler",
                    f"the driver of GPU {gpu} lets nobody choose how its time is divided",
                    hint="it does not in MIG mode, and on GPUs before Pascal",
                )
            if is_so(wanted, now):
                self._want(gpu, action.vm, now)
                return ActionResult(changed=False)
            self._check_unused(gpu)
            self._want(gpu, action.vm, now)
            try:
                self._driver.set(gpu, wanted)
                self._check_taken(gpu, wanted)
            except VgpuctlError:
                self._leave(gpu, action.vm)
                raise
        return ActionResult(changed=True)

    def _check_taken(self, gpu: str, wanted: Scheduler) -> None:
        now = self._driver.state(gpu)
        if now is None or not is_so(wanted, now):
            raise Fatal(
                "gpu.scheduler_refused",
                f"GPU {gpu} does not divide its time as it was told",
                hint="read the NVRM lines of the host's kernel log",
                details=f"asked for {words(wanted)}, it says {'nothing' if now is None else now.words}",
            )
