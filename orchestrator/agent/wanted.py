# SPDX-License-Identifier: Apache-2.0
"""What shall be there again after the host's next boot, as the actions that were performed here tell it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.ledger_file import Row
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import pci
from orchestrator.core.actions.host_actions import (
    AdoptDomain,
    DefineDomain,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    HostAction,
    MakesDevice,
    ReleaseDomain,
    RemovesDevice,
    SetMigMode,
    StartDomain,
    StopDomain,
    UndefineDomain,
)
from orchestrator.core.actions.nics import GiveNicFunction
from orchestrator.core.actions.settle_ledger import SettleLedger
from orchestrator.core.actions.suspension import SuspendDomain
from orchestrator.core.actions.vgpu_settings import SetGpuSetting, SetPowerLimit
from orchestrator.core.actions.volumes import PlugDevices
from orchestrator.core.attachments import make
from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.domain import BootPolicy, DomainDescription
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.protocol import layout_not_back, vm_not_back
from orchestrator.core.wire import action_from_dict, action_to_dict

_BOOT = "restored_boot"

Actions = tuple[HostAction, ...]


@dataclass(frozen=True)
class VmToRestore:
    """A VM that shall run. ``devices`` make its devices, in order."""

    vm: str
    devices: tuple[HostAction, ...]


class RestoreList:
    """Kept in the ledger's file."""

    def __init__(self, paths: Paths, ledger: Ledger, boot_id: str) -> None:
        self._paths = paths
        self._ledger, self._file = ledger, ledger.file
        self._boot_id = boot_id

    def before(self, action: HostAction) -> None:
        """Whatever becomes of a stop or a removal, nobody wants the VM to run or the device to be any more.

        :raises NotFound: ``vm.not_found``: the VM has left for another host, whatever is still defined here"""
        if isinstance(action, StartDomain) and self._has_gone(action.vm):
            raise NotFound(
                "vm.not_found", "the VM has left for another host", hint="'vgpuctl list-vms -A' tells where it is"
            )
        if isinstance(action, (StopDomain, SuspendDomain)):
            self._set(action.vm, "running", 0)
        if isinstance(action, RemovesDevice):
            self._want_no_more(action)
        if isinstance(action, DisableVirtualFunctions):
            with self._file.write():
                self._file.run("DELETE FROM functions WHERE gpu = ?", (action.gpu,))

    def after(self, action: HostAction) -> None:
        """It was done. A start that was not seen to succeed is its controller's to take up again."""
        if isinstance(action, StartDomain):
            self._set(action.vm, "running", 1)
            self._set(action.vm, "boot_policy", action.boot_policy)
            self.note(action.vm, "")
        elif isinstance(action, (DefineDomain, PlugDevices)):
            described = DefineDomain(vm=action.vm, domain=action.domain)
            self._set(action.vm, "described", json.dumps(action_to_dict(described)))
            self._set(action.vm, "gone", 0)
        elif isinstance(action, MakesDevice):
            self._want_device(action)
        elif isinstance(action, AdoptDomain):
            for device in action.devices:
                for made_by in make(action.vm, device):
                    self.after(made_by)
            self._set(action.vm, "running", int(action.running))
            self._set(action.vm, "boot_policy", action.boot_policy)
        elif isinstance(action, (UndefineDomain, ReleaseDomain)):
            with self._file.write():
                self._file.run("DELETE FROM wanted WHERE vm = ?", (action.vm,))
        elif isinstance(action, EnableVirtualFunctions):
            self._want_functions(action.gpu)
        elif isinstance(action, SettleLedger):
            self._want_all(action)
        elif isinstance(action, SetMigMode):
            with self._file.write():
                self._file.run("UPDATE mig_modes SET wanted = ? WHERE gpu = ?", (int(action.on), action.gpu))

    def leaves(self, vm: str) -> None:
        """It is on its way to another host: a boot of this one does not bring it back by itself."""
        self._set(vm, "running", 0)

    def gone(self, vm: str) -> None:
        """It is on the other host with all it has: it does not start here before it is defined anew."""
        self._set(vm, "gone", 1)

    def stays(self, vm: str) -> None:
        """It did not go."""
        self._set(vm, "running", 1)

    def booted_since(self) -> bool:
        """Whether the host was booted since everything wanted was last there. A first start is no boot."""
        if not self._boot_id:
            return False  # cannot tell; a running VM must not be taken for one that the reboot stopped
        with self._file.write():
            before = self._file.meta(_BOOT)
            if before is None:
                self._file.set_meta(_BOOT, self._boot_id)
        return before not in {None, self._boot_id}

    def is_restoring(self) -> bool:
        """Whether what is wanted is still being brought back after a boot."""
        with self._file.read():
            before = self._file.meta(_BOOT)
        return bool(self._boot_id) and before not in {None, self._boot_id}

    def restored(self) -> None:
        """All that can be there again is there."""
        with self._file.write():
            self._file.set_meta(_BOOT, self._boot_id)

    def power_limits(self) -> tuple[SetPowerLimit, ...]:
        return tuple(SetPowerLimit(gpu=gpu, watts=watts) for gpu, watts in sorted(self._ledger.power_limits().items()))

    def functions(self) -> tuple[str, ...]:
        """GPUs of ours whose virtual functions shall be on."""
        with self._file.read():
            rows = self._file.all("SELECT gpu FROM functions WHERE gpu IN (SELECT address FROM gpus) ORDER BY gpu")
        return tuple(str(row[0]) for row in rows)

    def modes(self) -> tuple[SetMigMode, ...]:
        """MIG modes that we have set: a driver that is loaded anew may have lost them."""
        with self._file.read():
            rows = self._file.all(
                "SELECT gpu, wanted FROM mig_modes WHERE wanted IS NOT NULL "
                "AND gpu IN (SELECT address FROM gpus) ORDER BY gpu"
            )
        return tuple(SetMigMode(gpu=str(row[0]), on=bool(row[1])) for row in rows)

    def layouts(self) -> Actions:
        """Make the GPU instances that stand without VMs."""
        with self._file.read():
            row = self._file.one("SELECT devices FROM wanted WHERE vm = ?", KEEPER)
        return () if row is None else _actions(row)

    def vms(self) -> tuple[str, ...]:
        """VMs that shall run without anybody being asked."""
        with self._file.read():
            rows = self._file.all("SELECT vm FROM wanted WHERE running AND boot_policy = 'local' ORDER BY rowid")
        return tuple(str(row[0]) for row in rows)

    def find(self, vm: str) -> VmToRestore | None:
        """The VM, if it is still to be started."""
        with self._file.read():
            row = self._file.one("SELECT devices FROM wanted WHERE vm = ? AND running AND boot_policy = 'local'", vm)
        return None if row is None else VmToRestore(vm=vm, devices=_actions(row))

    def described(self, vm: str) -> tuple[DomainDescription, BootPolicy] | None:
        """As what the VM was defined last, and what is to happen with it after a boot. None: an older agent did it."""
        with self._file.read():
            row = self._file.one("SELECT described, boot_policy FROM wanted WHERE vm = ? AND described != ''", vm)
        if row is None:
            return None
        action = action_from_dict(json.loads(str(row[0])))
        policy: BootPolicy = "local" if row[1] == "local" else "ask-controller"
        return (action.domain, policy) if isinstance(action, DefineDomain) else None

    def note(self, vm: str, problem: str) -> None:
        """Why it does not run yet; empty: it does."""
        with self._file.write():
            self._file.run("UPDATE wanted SET problem = ? WHERE vm = ?", (problem, vm))

    def problems(self) -> tuple[str, ...]:
        """A line for each VM that should run again and does not, and one for a layout."""
        with self._file.read():
            rows = self._file.all(
                "SELECT vm, problem FROM wanted WHERE problem != '' AND (running OR vm = ?) ORDER BY rowid", KEEPER
            )
        reasons = [(str(vm), str(problem)) for vm, problem in rows]
        return tuple(layout_not_back(why) if vm == KEEPER else vm_not_back(vm, why) for vm, why in reasons)

    def _has_gone(self, vm: str) -> bool:
        with self._file.read():
            return self._file.one("SELECT 1 FROM wanted WHERE vm = ? AND gone", vm) is not None

    def _want_all(self, action: SettleLedger) -> None:
        for gpu in action.functions:
            self._want_functions(gpu)
        for vm in action.vms:
            devices = vm.devices if vm.running else ()
            wanted = AdoptDomain(vm=vm.vm, devices=devices, running=vm.running, boot_policy=vm.boot_policy)
            self.after(wanted)
            if vm.nic is not None and vm.running:
                self.after(vm.nic)

    def _want_device(self, action: MakesDevice) -> None:
        self._set_devices(action.vm, lambda actions: actions if action in actions else _in_order((*actions, action)))
        gpu = pci.physical_gpu(self._paths, action.function)
        if gpu != action.function and not isinstance(action, GiveNicFunction):  # that one sees to them itself
            self._want_functions(gpu)

    def _want_no_more(self, action: RemovesDevice) -> None:
        self._set_devices(action.vm, lambda made: tuple(make for make in made if make.inverse() != action))

    def _set_devices(self, vm: str, change: Callable[[Actions], Actions]) -> None:
        with self._file.read():
            row = self._file.one("SELECT devices FROM wanted WHERE vm = ?", vm)
        devices = change(() if row is None else _actions(row))
        self._set(vm, "devices", json.dumps([action_to_dict(make) for make in devices]))

    def _want_functions(self, gpu: str) -> None:
        with self._file.write():
            self._file.run("INSERT OR IGNORE INTO functions (gpu) VALUES (?)", (gpu,))

    def _set(self, vm: str, column: str, value: str | int) -> None:
        with self._file.write():
            self._file.run("INSERT OR IGNORE INTO wanted (vm) VALUES (?)", (vm,))
            self._file.run(f"UPDATE wanted SET {column} = ? WHERE vm = ?", (value, vm))  # noqa: S608 - our own names


def _in_order(actions: Actions) -> Actions:
    """Settings of GPUs first: drivers change them only while no vGPU is there, and one of several that a VM has on a
    GPU may have been made anew, with its setting."""
    return tuple(sorted(actions, key=lambda action: not isinstance(action, SetGpuSetting)))


def _actions(row: Row) -> Actions:
    return tuple(action_from_dict(action) for action in json.loads(str(row[0]) or "[]"))
