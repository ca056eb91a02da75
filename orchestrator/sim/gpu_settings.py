# SPDX-License-Identifier: Apache-2.0
"""Settings of GPUs: the agent's own table (agent/gpu_settings.py) over a machine in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from orchestrator.agent.gpu_settings import GpuChecks, GpuSettings, SettingDrivers
from orchestrator.agent.power_limits import PowerLimits, PowerState
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.vgpu_settings import (
    RestoreMixedSizes,
    RestoreVgpuScheduler,
    SetMixedSizes,
    SetPowerLimit,
    SetVgpuScheduler,
)
from orchestrator.core.errors import Conflict
from orchestrator.sim.kernel import SimulatedGpu
from orchestrator.sim.machine import SimulatedMachine, gpu_there, may_die
from orchestrator.sim.vgpu_actions import check_managed, check_no_vgpus

S = TypeVar("S")


@dataclass(frozen=True)
class _Driver(Generic[S]):
    machine: SimulatedMachine
    get: Callable[[SimulatedGpu], S | None]
    put: Callable[[SimulatedGpu, S], None]

    def read(self, gpu: str) -> S | None:
        return self.get(gpu_there(self.machine, gpu))

    def write(self, gpu: str, state: S) -> None:
        try:
            self.put(gpu_there(self.machine, gpu), state)
        except OSError as error:
            raise Conflict("gpu.in_use", f"the driver of GPU {gpu} changes nothing of it now") from error
        may_die(self.machine)


class _Records:
    """In the machine's ledger, good for one boot."""

    def __init__(self, machine: SimulatedMachine, table: str, users: str) -> None:
        self._machine = machine
        self._before = machine.ledger.settings.setdefault(table, {})
        self._users = machine.ledger.setting_users.setdefault(users, {})

    def before(self, gpu: str) -> str | None:
        boot, text = self._before.get(gpu, (0, ""))
        return text if boot == self._machine.boot else None

    def want(self, gpu: str, vm: str, now: str) -> None:
        if self.before(gpu) is None:
            self._before[gpu] = (self._machine.boot, now)
        users = self._users.setdefault(gpu, [])
        if vm not in users:
            users.append(vm)
        may_die(self._machine)

    def want_no_more(self, gpu: str, vm: str) -> bool:
        left = [user for user in self._users.pop(gpu, []) if user != vm]
        if left:
            self._users[gpu] = left
        may_die(self._machine)
        return bool(left)

    def forget(self, gpu: str) -> None:
        self._before.pop(gpu, None)


def settings_of(machine: SimulatedMachine) -> GpuSettings:
    kernel = machine.kernel
    drivers = SettingDrivers(
        schedulers=_Driver(machine, kernel.scheduler_of, kernel.set_scheduler),
        mixed_sizes=_Driver(machine, kernel.mixed_sizes_of, kernel.set_mixed_sizes),
    )
    checks = GpuChecks(partial(check_managed, machine), partial(check_no_vgpus, machine))
    return GpuSettings(drivers, partial(_Records, machine), checks)


@dataclass(frozen=True)
class _Power:
    """Driver and records of limits of power."""

    machine: SimulatedMachine

    def read(self, gpu: str) -> PowerState | None:
        card = gpu_there(self.machine, gpu)
        now, most = power_limit(card), card.kind.power_max_watts * 1000
        if now is None:
            return None
        return PowerState(least=card.kind.power_min_watts * 1000, default=most, most=most, now=now * 1000)

    def write(self, gpu: str, state: PowerState) -> None:
        gpu_there(self.machine, gpu).power_limit_watts = 0 if state.now == state.default else state.now // 1000
        may_die(self.machine)

    def power_limits(self) -> dict[str, int]:
        return dict(self.machine.ledger.power_limits)

    def note_power_limit(self, gpu: str, watts: int) -> None:
        self.machine.ledger.power_limits.pop(gpu, None)
        if watts:
            self.machine.ledger.power_limits[gpu] = watts
        may_die(self.machine)


def power_of(machine: SimulatedMachine) -> PowerLimits:
    return PowerLimits(_Power(machine), _Power(machine), partial(check_managed, machine))


def power_limit(gpu: SimulatedGpu) -> int | None:
    """None: its driver does not have it."""
    return (gpu.power_limit_watts or gpu.kind.power_max_watts) if gpu.driver == "nvidia" else None


def observed_settings(machine: SimulatedMachine, gpu: SimulatedGpu) -> dict[str, Any]:
    """Fields of a snapshot that say how the GPU is set."""
    return {
        "scheduler": machine.kernel.scheduler_of(gpu),
        "heterogeneous": machine.kernel.mixed_sizes_of(gpu),
        "power_min_watts": gpu.kind.power_min_watts,
        "power_default_watts": gpu.kind.power_max_watts,
        "power_max_watts": gpu.kind.power_max_watts,
        "power_limit_watts": power_limit(gpu),
    }


def _perform(machine: SimulatedMachine, action: HostAction) -> ActionResult:
    return settings_of(machine).handlers[type(action)](action)


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    **dict.fromkeys((SetVgpuScheduler, RestoreVgpuScheduler, SetMixedSizes, RestoreMixedSizes), _perform),
    SetPowerLimit: lambda machine, action: power_of(machine).set(action),
}
