# SPDX-License-Identifier: Apache-2.0
"""GPUs' MIG mode: switched on an idle GPU only, and as it was before when the GPU is given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.agent.attachments.device_files import check_ours
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.mig import Mig
from orchestrator.core.actions.host_actions import ActionResult, SetMigMode
from orchestrator.core.errors import Fatal, Retryable, VgpuctlError


@dataclass(frozen=True)
class Functions:
    """A GPU's virtual functions. The driver refuses MIG off while they are on, and makes none of MIG-backed types on
    those that were on before."""

    enabled: Callable[[str], bool]
    enable: Callable[[str], object]
    disable: Callable[[str], object]
    """Refused while anything is on them."""
    check_unused: Callable[[str], None]
    """:raises Conflict: ``gpu.in_use`` with the names of what is there"""


class MigModes:
    def __init__(self, ledger: Ledger, mig: Mig, functions: Functions) -> None:
        self._ledger, self._mig, self._functions = ledger, mig, functions

    def set_mode(self, action: SetMigMode) -> ActionResult:
        """:raises Conflict: ``gpu.in_use``; :raises Fatal: ``gpu.no_mig``; :raises Retryable: ``gpu.mig_pending``"""
        check_ours(self._ledger, action.gpu)
        modes = self._mig.modes(action.gpu)
        if modes is None:
            raise Fatal(
                "gpu.no_mig",
                f"GPU {action.gpu} has no MIG",
                hint=f"'vgpuctl gpu show HOST {action.gpu}' tells what it offers",
            )
        if self._ledger.mig_mode_before(action.gpu) is None:
            self._ledger.note_mig_mode(action.gpu, before=modes[0])
        if modes[0] == action.on:
            return ActionResult(changed=False)
        self._functions.check_unused(action.gpu)
        self._switch(action.gpu, on=action.on)
        return ActionResult(changed=True)

    def settle(self, gpu: str, *, before: bool) -> None:
        """Write down again what it was before, where it is another one now."""
        modes = self._mig.modes(gpu)
        if modes is not None and modes[0] != before:
            self._ledger.note_mig_mode(gpu, before=before, wanted=modes[0])

    def put_back(self, gpu: str) -> None:
        """The mode that the GPU had before we changed it first. :raises VgpuctlError: as :meth:`set_mode`"""
        before = self._ledger.mig_mode_before(gpu)
        if before is not None:
            self.set_mode(SetMigMode(gpu=gpu, on=before))
            self._ledger.forget_mig_mode(gpu)

    def _switch(self, gpu: str, *, on: bool) -> None:
        had = self._functions.enabled(gpu)
        if had:
            self._functions.disable(gpu)
        try:
            self._mig.set_mode(gpu, on=on)
            self._check_switched(gpu, on=on)
        finally:
            if had:
                self._functions.enable(gpu)

    def _check_switched(self, gpu: str, *, on: bool) -> None:
        modes = self._mig.modes(gpu)
        if modes is not None and modes[0] == on:
            return
        try:
            self._mig.set_mode(gpu, on=not on)  # or the next reset, whoever asks for it, would switch it
            left = ""
        except VgpuctlError as error:
            left = f"; it could not be taken back: {error.message}"
        raise Retryable(
            "gpu.mig_pending",
            f"the MIG mode of GPU {gpu} stays pending: something uses the GPU",
            hint="stop what has it open (monitoring, persistence daemon), then try again",
            details=f"asked for {'on' if on else 'off'}{left}",
        )
