# SPDX-License-Identifier: Apache-2.0
"""Limits of power of GPUs: set at any time, whatever is on the GPU, and forgotten by its driver with each loading. What
was asked for is in the ledger, and is set again after a boot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.vgpu_settings import SetPowerLimit
from orchestrator.core.errors import Fatal


@dataclass(frozen=True, kw_only=True)
class PowerState:
    """In milliwatts, as NVML has them."""

    least: int
    default: int
    most: int
    now: int
    """What it was told last to keep to."""


class PowerDriver(Protocol):
    """Errors are those of agent/nvml/gpu_settings.py."""

    def read(self, gpu: str) -> PowerState | None:
        """None: the GPU has none that could be set, or its driver does not have it now."""

    def write(self, gpu: str, state: PowerState) -> None:
        """``now`` of it. Read it again."""


class PowerRecords(Protocol):
    def power_limits(self) -> dict[str, int]:
        """In watts, by GPU that has not its own."""

    def note_power_limit(self, gpu: str, watts: int) -> None:
        """0: it has its own again."""


@dataclass(frozen=True)
class PowerLimits:
    driver: PowerDriver
    records: PowerRecords
    check_ours: Callable[[str], None]
    """:raises Denied: ``gpu.not_managed``"""

    @property
    def handlers(self) -> dict[type[HostAction], Callable[[Any], ActionResult]]:
        return {SetPowerLimit: self.set}

    def set(self, action: SetPowerLimit) -> ActionResult:
        """:raises Fatal: ``gpu.no_power_limit``, ``gpu.power_limit_outside``, ``gpu.power_limit_refused``"""
        gpu = action.gpu
        self.check_ours(gpu)
        state = self.driver.read(gpu)
        if state is None:
            raise Fatal(
                "gpu.no_power_limit",
                f"the power of GPU {gpu} cannot be limited",
                hint="its driver lets nobody do so, or does not have it: a VM may have all of it",
            )
        wanted = action.watts * 1000 or state.default
        if not state.least <= wanted <= state.most:
            raise Fatal(
                "gpu.power_limit_outside",
                f"GPU {gpu} takes limits of {-(-state.least // 1000)} to {state.most // 1000} W",
                hint=f"'vgpuctl gpu show HOST {gpu}' tells them",
            )
        if action.watts:
            self.records.note_power_limit(gpu, action.watts)
        changed = self._write(gpu, state, wanted)
        if not action.watts:
            self.records.note_power_limit(gpu, 0)
        return ActionResult(changed=changed)

    def put_back(self, gpu: str) -> None:
        """Its own, where we have set another one. :raises VgpuctlError: the driver's"""
        if gpu in self.records.power_limits():
            state = self.driver.read(gpu)
            if state is not None:
                self._write(gpu, state, state.default)
            self.records.note_power_limit(gpu, 0)

    def _write(self, gpu: str, before: PowerState, wanted: int) -> bool:
        if before.now == wanted:
            return False
        self.driver.write(gpu, replace(before, now=wanted))
        after = self.driver.read(gpu)
        if after is None or after.now != wanted:
            raise Fatal(
                "gpu.power_limit_refused",
                f"GPU {gpu} does not keep to the limit of power that it was told",
                hint="read the NVRM lines of the host's kernel log",
                details=f"told {wanted} mW, it says {'nothing' if after is None else f'{after.now} mW'}",
            )
        return True
