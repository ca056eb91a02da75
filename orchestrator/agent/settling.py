# SPDX-License-Identifier: Apache-2.0
"""A ledger that was lost is written again: from what the controller's database knows and what is still here."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.gpu_switches import GpuSwitches
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.nics import NicFunctions
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.settle_ledger import KnownVm, SettleLedger
from orchestrator.core.actions.vgpu_settings import SetGpuSetting
from orchestrator.core.attachments import make
from orchestrator.core.errors import VgpuctlError, WorldError
from orchestrator.core.gpu.device import Device


@dataclass(frozen=True)
class Settler:
    """Changes nothing but the ledger. What is not here, or is not as it was described, is left nobody's."""

    ledger: Ledger
    storage: Storage
    kinds: Kinds
    domains: Domains
    nics: NicFunctions
    switches: GpuSwitches

    def settle(self, action: SettleLedger) -> ActionResult:
        """The performer says that it is settled when also what shall run after a boot is written down."""
        if not self.ledger.is_lost():
            return self._take_up(action)
        self.ledger.manage_gpus(action.gpus)
        for mode in action.mig_modes:
            self.switches.modes.settle(mode.gpu, before=mode.on)
        for vm in action.vms:
            self._settle(vm)
        self.storage.data.settle(action.data)
        return ActionResult(changed=True, message=f"{len(action.vms)} VMs")

    def _take_up(self, action: SettleLedger) -> ActionResult:
        """Devices of domains of ours that nobody owns."""
        ours = [vm for vm in action.vms if self.domains.is_ours(vm.vm)]
        nobodys = [(vm.vm, device) for vm in ours for device in vm.devices if self._is_nobodys(device)]
        taken = sum(self._adopted(vm, device) for vm, device in nobodys)
        return ActionResult(changed=bool(taken), message=f"{taken} devices" if taken else "")

    def _is_nobodys(self, device: Device) -> bool:
        return self.kinds[device.kind].owner_of(device.name) is None

    def _settle(self, vm: KnownVm) -> None:
        if not vm.adopted:
            self.storage.settle(vm.vm, vm.volume, vm.seed)
        self.domains.settle(vm.vm, adopted=vm.adopted)
        for device in vm.devices:
            self._adopted(vm.vm, device)
        if vm.nic is not None:
            self.nics.settle(vm.nic)

    def _adopted(self, vm: str, device: Device) -> bool:
        """Not one that is not there, as of a VM that is stopped.

        :raises WorldError: the host could not be read: settled later, or not at all"""
        try:
            self.kinds[device.kind].adopt(vm, device)
        except WorldError:
            raise
        except VgpuctlError:
            return False
        for made_by in make(vm, device):
            if isinstance(made_by, SetGpuSetting):
                self.switches.settings.settle(made_by)
        return True
