# SPDX-License-Identifier: Apache-2.0
"""After a reboot: virtual functions on, vGPUs made and VMs started again, from the ledger and with no controller.

Controllers are answered meanwhile. Each VM is restored in its own turn and only if it is still wanted when the
turn comes, so an action that arrives first decides, and one that arrives later finds the work done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from orchestrator.agent.timing import Timing
from orchestrator.agent.turns import HOST, Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.errors import NotFound, VgpuctlError, WorldError
from orchestrator.core.host_actions import ActionResult, CreateMdev, SetVgpuType

_PAUSES = (1, 2, 4, 8, 15, 30, 30, 60, 60, 60, 60, 60)
"""Seconds between tries: libvirt and NVIDIA's driver may take minutes after a boot."""


class MakesVgpus(Protocol):
    def create_mdev(self, action: CreateMdev) -> ActionResult: ...
    def set_type(self, action: SetVgpuType) -> ActionResult: ...


class StartsDomains(Protocol):
    def start(self, vm: str) -> ActionResult: ...


class Restorer:
    """Runs once, on a thread of its own."""

    def __init__(
        self,
        wanted: RestoreList,
        turns: Turns,
        timing: Timing,
        *,
        vgpus: MakesVgpus,
        domains: StartsDomains,
        enable_functions: Callable[[str], ActionResult],
    ) -> None:
        self._wanted = wanted
        self._turns = turns
        self._timing = timing
        self._vgpus = vgpus
        self._domains = domains
        self._enable_functions = enable_functions
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
        gpus, vms = self._wanted.functions(), self._wanted.vms()
        for pause in (*_PAUSES, 0):
            gpus = tuple(gpu for gpu in gpus if not self._functions_on(gpu))
            vms = tuple(vm for vm in vms if not self._runs(vm))
            if self._stopping.is_set():
                return  # the next start of the agent goes on with it
            if not gpus and not vms:
                break
            self._pause(pause)
        self._wanted.restored()

    def _pause(self, seconds: int) -> None:
        for _ in range(seconds):
            if not self._stopping.is_set():
                self._timing.sleep(1)

    def _functions_on(self, gpu: str) -> bool:
        if self._stopping.is_set():
            return False
        with self._turns.of(HOST):
            if gpu not in self._wanted.functions():
                return True
            try:
                self._enable_functions(gpu)
            except WorldError:
                return False  # its VMs say what is missing
            except VgpuctlError:
                return True
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
                if isinstance(wanted.device, CreateMdev):
                    self._vgpus.create_mdev(wanted.device)
                elif isinstance(wanted.device, SetVgpuType):
                    self._vgpus.set_type(wanted.device)
                self._domains.start(vm)
            except NotFound:
                self._wanted.note(vm, "")
                return True  # somebody undefined it: the snapshot shows that, and a controller defines it again
            except VgpuctlError as error:
                self._wanted.note(vm, error.message)
                return not isinstance(error, WorldError)
            self._wanted.note(vm, "")
        return True
