# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are ours, their virtual functions on and off, their MIG mode, which is switched on an idle GPU only, and
what else is switched of a GPU as a whole. Each is as it was before when the GPU is given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from orchestrator.agent.attachments.device_files import check_address, check_managed, check_ours
from orchestrator.agent.attachments.gpu_use import without_persistence
from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.attachments.mig_backed import InstanceHolders
from orchestrator.agent.gpu_settings import GpuChecks, GpuSettings, LedgerRecords, SettingDrivers
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.mig import Mig
from orchestrator.agent.nvml.reading import Driver
from orchestrator.agent.paths import Paths
from orchestrator.agent.power_limits import PowerDriver, PowerLimits
from orchestrator.agent.sysfs import binding, open_files, pci, reading, sriov
from orchestrator.agent.timing import Timing
from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import ActionResult, SetMigMode
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, Retryable, Unknown, VgpuctlError
from orchestrator.core.gpu.pci import parse_pci_address


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


@dataclass(frozen=True)
class Chosen:
    """What the driver lets one choose for a whole GPU."""

    mig: Mig
    settings: SettingDrivers
    power: PowerDriver


class GpuSwitches:
    def __init__(
        self, paths: Paths, ledger: Ledger, timing: Timing, nvml: Driver, kinds: Kinds, chosen: Chosen
    ) -> None:
        self._paths = paths
        self._ledger = ledger
        self._timing = timing
        self._nvml = nvml
        self._kinds = kinds
        self._mig = chosen.mig
        enabled, enable = self._enabled, self.enable_virtual_functions
        functions = Functions(enabled, enable, self.disable_virtual_functions, self._check_no_vgpus)
        self.modes = MigModes(ledger, chosen.mig, functions)
        records = partial(LedgerRecords, ledger.file, ledger.boot_id)
        checks = GpuChecks(partial(check_ours, ledger), self._check_no_vgpus)
        self.settings = GpuSettings(chosen.settings, records, checks)
        self.power = PowerLimits(chosen.power, ledger, partial(check_ours, ledger))

    def manage(self, addresses: tuple[str, ...]) -> ActionResult:
        """:raises InvalidInput: ``gpu.unknown``
        :raises Conflict: ``gpu.in_use`` for a GPU to be given back that still has a vGPU of ours"""
        wanted = frozenset(parse_pci_address(address) for address in addresses)
        here = {gpu.address for gpu in pci.gpus(self._paths)}
        if wanted - here:
            raise InvalidInput(
                "gpu.unknown", "the host has no such GPU", hint="see lspci -D", details=", ".join(sorted(wanted - here))
            )
        before = self._ledger.managed_gpus()
        for gpu in sorted((before - wanted) & here):
            self._check_no_vgpus(gpu)
            self.settings.put_back(gpu)
            self.power.put_back(gpu)
            self._mode_back(gpu)
        if wanted == before:
            return ActionResult(changed=False)
        self._ledger.manage_gpus(tuple(wanted))
        return ActionResult(changed=True)

    def _mode_back(self, gpu: str) -> None:
        """Another card's mode is its own."""
        if gpu in self._ledger.cards.strangers():
            self._ledger.forget_mig_mode(gpu)
        else:
            self.modes.put_back(gpu)

    def accept(self, action: AcceptGpus) -> ActionResult:
        """The operator has said that these cards are right where they are. Whether they are is looked at when something
        is made there."""
        for card in action.cards:
            check_address(card.address)
        return ActionResult(changed=self._ledger.cards.accept(action.cards))

    def enable_virtual_functions(self, gpu: str) -> ActionResult:
        """Those of a GPU that a VM has as a whole come on when it is given back. sriov-manage destroys GPU instances.

        :raises Conflict: ``gpu.in_use`` with those that we did not make
        :raises Fatal: ``gpu.no_sriov``, ``gpu.sriov_failed``"""
        check_ours(self._ledger, gpu)
        if self._enabled(gpu) or binding.is_passed_through(self._paths, gpu):
            return ActionResult(changed=False)
        if not reading.number(self._paths.pci(gpu) / "sriov_totalvfs"):
            raise Fatal("gpu.no_sriov", f"GPU {gpu} has no virtual functions", hint="is SR-IOV on in the firmware?")
        self._check_no_foreign_instances(gpu)
        with without_persistence(self._nvml, gpu):
            sriov.manage(self._paths, self._timing, "-e", gpu)
        if not self._enabled(gpu):
            raise Unknown("gpu.sriov_failed", f"GPU {gpu} shows no virtual functions after sriov-manage -e")
        return ActionResult(changed=True)

    def disable_virtual_functions(self, gpu: str) -> ActionResult:
        """:raises Conflict: ``gpu.in_use``; sriov-manage clears the types of all functions, also those of others"""
        check_managed(self._ledger, gpu)
        if not self._enabled(gpu):
            return ActionResult(changed=False)
        self._check_no_vgpus(gpu)
        with without_persistence(self._nvml, gpu):
            sriov.manage(self._paths, self._timing, "-d", gpu)
        if self._enabled(gpu):
            raise Unknown("gpu.sriov_failed", f"GPU {gpu} still shows virtual functions after sriov-manage -d")
        return ActionResult(changed=True)

    def _check_no_foreign_instances(self, gpu: str) -> None:
        modes = self._mig.modes(gpu)
        instances = self._mig.instances(gpu) if modes is not None and modes[0] else ()
        holders = InstanceHolders(self._ledger)
        foreign = [instance for instance in instances if not holders.of(gpu, instance.start)]
        if foreign:
            raise Conflict(
                "gpu.in_use",
                f"GPU {gpu} has GPU instances that we did not make",
                hint="switching virtual functions on would destroy them; remove them first, or switch the functions on",
                details=", ".join(f"{instance.profile} at slot {instance.start}" for instance in foreign),
            )

    def _enabled(self, gpu: str) -> bool:
        return bool(reading.number(self._paths.pci(gpu) / "sriov_numvfs"))

    def _check_no_vgpus(self, gpu: str) -> None:
        functions = (gpu, *pci.virtual_functions(self._paths, gpu))
        opened = open_files.open_vfio_devices(self._paths)
        used = {name for kind in self._kinds.values() for name in kind.names_on(functions)}
        used |= {
            function for function in functions if open_files.in_use(self._paths.pci(function), opened) is not False
        }
        if used:
            raise Conflict(
                "gpu.in_use",
                f"GPU {gpu} has vGPUs or is in use",
                hint="remove them first",
                details=", ".join(sorted(used)),
            )
