# SPDX-License-Identifier: Apache-2.0
"""A ledger that was lost is written again: from what the controller's database knows and what is still here."""

from __future__ import annotations

from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.nics import NicFunctions
from orchestrator.core.errors import VgpuctlError, WorldError
from orchestrator.core.host_actions import ActionResult
from orchestrator.core.settle_ledger import KnownVm, SettleLedger


class Settler:
    """Changes nothing but the ledger. What is not here, or is not as it was described, is left nobody's."""

    def __init__(self, ledger: Ledger, storage: Storage, kinds: Kinds, domains: Domains, nics: NicFunctions) -> None:
        self._ledger = ledger
        self._storage = storage
        self._kinds = kinds
        self._domains = domains
        self._nics = nics

    def settle(self, action: SettleLedger) -> ActionResult:
        """The performer says that it is settled when also what shall run after a boot is written down."""
        if not self._ledger.is_lost():
            return ActionResult(changed=False)
        self._ledger.manage_gpus(action.gpus)
        for vm in action.vms:
            self._settle(vm)
        self._storage.data.settle(action.data)
        return ActionResult(changed=True, message=f"{len(action.vms)} VMs")

    def _settle(self, vm: KnownVm) -> None:
        if not vm.adopted:
            self._storage.settle(vm.vm, vm.volume, vm.seed)
        self._domains.settle(vm.vm, adopted=vm.adopted)
        for device in vm.devices:
            try:
                self._kinds[device.kind].adopt(vm.vm, device)
            except WorldError:
                raise  # the host could not be read: settled later, or not at all
            except VgpuctlError:
                continue  # it is not there, as of a VM that is stopped
        if vm.nic is not None:
            self._nics.settle(vm.nic)
