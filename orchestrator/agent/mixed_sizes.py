# SPDX-License-Identifier: Apache-2.0
"""Whether GPUs take vGPUs of several sizes (heterogeneous mode)."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.agent.attachments.device_files import check_ours
from orchestrator.agent.attachments.kind import Handlers
from orchestrator.agent.gpu_setting import GpuSetting
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.mixed_sizes import GpuMixedSizes
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.vgpu_settings import RestoreMixedSizes, SetMixedSizes
from orchestrator.core.errors import Fatal, VgpuctlError


class MixedSizes(GpuSetting[bool]):
    stays = "the GPU goes on taking vGPUs of several sizes for now"
    default = False

    def __init__(self, ledger: Ledger, driver: GpuMixedSizes, check_unused: Callable[[str], None]) -> None:
        """``check_unused``: raises ``gpu.in_use`` with what is on a GPU."""
        super().__init__(ledger.mixed_sizes, driver, check_unused)
        self._ledger, self._driver = ledger, driver

    @property
    def handlers(self) -> Handlers:
        return {SetMixedSizes: self.set, RestoreMixedSizes: lambda a: self._want_no_more(a.gpu, a.vm)}

    def to_text(self, state: bool) -> str:
        return str(int(state))

    def from_text(self, text: str) -> bool:
        return text == "1"

    def set(self, action: SetMixedSizes) -> ActionResult:
        """:raises Conflict: ``gpu.in_use``; :raises Fatal: ``gpu.no_mixed_sizes``, ``gpu.mixed_sizes_refused``"""
        gpu = action.gpu
        check_ours(self._ledger, gpu)
        with self._alone(gpu):
            now = self._driver.state(gpu)
            if now is None:
                raise Fatal(
                    "gpu.no_mixed_sizes",
                    f"the driver mixes no vGPU sizes on GPU {gpu}",
                    hint="it takes vGPU 17 or later, and a GPU of Ampere or later that is not in MIG mode",
                )
            if now:
                self._want(gpu, action.vm, now)
                return ActionResult(changed=False)
            self._check_unused(gpu)
            self._want(gpu, action.vm, now)
            try:
                self._driver.put(gpu, before=True)
                self._check_taken(gpu)
            except VgpuctlError:
                self._leave(gpu, action.vm)
                raise
        return ActionResult(changed=True)

    def _check_taken(self, gpu: str) -> None:
        """The driver loses it without a word when virtual functions are switched."""
        if not self._driver.state(gpu):
            raise Fatal(
                "gpu.mixed_sizes_refused",
                f"GPU {gpu} took the order to mix vGPU sizes and does not",
                hint="read the NVRM lines of the host's kernel log",
            )
