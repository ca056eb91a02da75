# SPDX-License-Identifier: Apache-2.0
"""After a reboot: limits of power, MIG modes and virtual functions as they were, GPU instances and vGPUs made, VMs
started again, from the ledger and with no controller.

Controllers are answered meanwhile. Each VM is restored in its own turn and only if it is still wanted when the
turn comes, so an action that arrives first decides, and one that arrives later finds the work done.
"""

from __future__ import annotations

import logging
import threading

from orchestrator.agent.attachments.kind import Handlers
from orchestrator.agent.timing import Timing
from orchestrator.agent.turns import HOST, Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.host_actions import EnableVirtualFunctions, HostAction, SetMigMode, StartDomain
from orchestrator.core.actions.vgpu_settings import SetPowerLimit
from orchestrator.core.errors import NotFound, VgpuctlError, WorldError
from orchestrator.core.hosts.mig_layout import KEEPER

log = logging.getLogger(__name__)
_PAUSES = (1, 2, 4, 8, 15, 30, 30, 60, 60, 60, 60, 60)
"""Seconds between tries: libvirt and NVIDIA's driver may take minutes after a boot."""
_IN_USE = frozenset({"gpu.in_use", "nic.in_use", "vgpu.in_use"})
_MAX_DETAILS = 300
"""Characters."""


class Restorer:
    """Runs once, on a thread of its own."""

    def __init__(
        self,
        wanted: RestoreList,
        turns: Turns,
        timing: Timing,
        handlers: Handlers,
    ) -> None:
        self._wanted = wanted
        self._turns = turns
        self._timing = timing
        self._handlers = handlers
        self._missing: dict[HostAction, str] = {}
        """GPU instances of layouts that are not there, and why."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.run, name="restore", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing more. What is under way is in somebody's turn and is waited for there."""
        self._stopping.set()

    def run(self) -> None:
        """Until everything wanted is there, or has been tried often enough; what is missing is told in the snapshot."""
        if not self._wanted.booted_since():
            return
        modes, gpus, vms = self._wanted.modes(), self._wanted.functions(), self._wanted.vms()
        layouts, limits = self._wanted.layouts(), self._wanted.power_limits()
        log.warning("the host was booted: %d VMs that ran are started again", len(vms))
        for pause in (*_PAUSES, 0):
            limits = tuple(limit for limit in limits if not self._is_limited(limit))  # before anything takes power
            modes = tuple(mode for mode in modes if not self._in_mode(mode))  # before the functions: it has them off
            gpus = tuple(gpu for gpu in gpus if not self._functions_on(gpu))
            # After the functions, which end them.
            layouts = tuple(layout for layout in layouts if not self._is_cut(layout))
            vms = tuple(vm for vm in vms if not self._runs(vm))
            if self._stopping.is_set():
                return  # the next start of the agent goes on with it
            if not limits and not modes and not gpus and not layouts and not vms:
                break
            self._pause(pause)
        self._wanted.restored()
        log.warning("what ran before the boot was restored, but for %d VMs", len(vms))

    def _pause(self, seconds: int) -> None:
        for _ in range(seconds):
            if not self._stopping.is_set():
                self._timing.sleep(1)

    def _is_limited(self, limit: SetPowerLimit) -> bool:
        if self._stopping.is_set():
            return False
        with self._turns.of(HOST):
            return limit not in self._wanted.power_limits() or self._is_done(limit)

    def _in_mode(self, mode: SetMigMode) -> bool:
        if self._stopping.is_set():
            return False
        with self._turns.of(HOST):
            if mode not in self._wanted.modes():
                return True
            return self._is_done(mode)

    def _functions_on(self, gpu: str) -> bool:
        if self._stopping.is_set():
            return False
        with self._turns.of(HOST):
            if gpu not in self._wanted.functions():
                return True
            return self._is_done(EnableVirtualFunctions(gpu=gpu))

    def _is_cut(self, instance: HostAction) -> bool:
        """Whether nothing more is to be done for a GPU instance of a layout."""
        if self._stopping.is_set():
            return False
        with self._turns.of(KEEPER):
            if instance not in self._wanted.layouts():
                return True
            self._missing.pop(instance, None)
            try:
                self._do(instance)
            except VgpuctlError as error:
                self._missing[instance] = _why(error)
                return not _may_pass(error)
            finally:
                self._wanted.note(KEEPER, "; ".join(self._missing.values()))
        return True

    def _runs(self, vm: str) -> bool:
        """Whether nothing more is to be done for it."""
        if self._stopping.is_set():
            return False
        with self._turns.of(vm):
            wanted = self._wanted.find(vm)
            if wanted is None:
                return True
            try:
                for action in wanted.devices:
                    self._do(action)
                self._do(StartDomain(vm=vm))
            except NotFound:
                self._wanted.note(vm, "")
                return True  # somebody undefined it: the snapshot shows that, and a controller defines it again
            except VgpuctlError as error:
                self._wanted.note(vm, _why(error))
                return not _may_pass(error)
            self._wanted.note(vm, "")
        return True

    def _is_done(self, action: HostAction) -> bool:
        """Or cannot be: VMs that need it say what is missing."""
        try:
            self._do(action)
        except VgpuctlError as error:
            return not _may_pass(error)
        return True

    def _do(self, action: HostAction) -> None:
        """Without a fence: what the ledger wants is newer than any controller's token."""
        self._handlers[type(action)](action)


def _may_pass(error: VgpuctlError) -> bool:
    """NVIDIA's daemons, and whoever reads a host, open its GPUs for a moment when it boots."""
    return isinstance(error, WorldError) or error.code in _IN_USE


def _why(error: VgpuctlError) -> str:
    """In one line: which function, or what QEMU said, stands in the details."""
    details = " ".join((error.details or "").split())[:_MAX_DETAILS]
    return f"{error.message} ({details})" if details else error.message
