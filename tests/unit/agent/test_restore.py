# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles, check_ours
from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.agent.gpu_settings import GpuChecks, GpuSettings, LedgerRecords, SettingDrivers, VgpuParameterFiles
from orchestrator.agent.gpu_switches import Functions, GpuSwitches, MigModes
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.consoles import ConsoleLogs
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.libvirt.saved_memory import SavedMemory
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.performing import Parts, Performer
from orchestrator.agent.power_limits import PowerLimits
from orchestrator.agent.restore import Restorer
from orchestrator.agent.settling import Settler
from orchestrator.agent.sysfs.bridges import HostBridges
from orchestrator.agent.turns import Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.gpu_cards import GpuCard
from orchestrator.core.actions.host_actions import (
    ActionResult,
    BindVfio,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    FencingToken,
    HostAction,
    MakeVgpu,
    RemoveMdev,
    RestoreDriver,
    StartDomain,
    StopDomain,
    UndefineDomain,
)
from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable, VgpuctlError
from orchestrator.core.hosts.domain import BootPolicy
from tests.fakes.fake_gpu_settings import BEST_EFFORT, OWN_LIMIT, FakeSetting
from tests.fakes.fake_mig import FakeMig
from tests.fakes.fake_nics import network_functions
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, L40S, VF1 = "0000:01:00.0", "0000:02:00.0", "0000:02:00.1"
UUID = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
OTHER = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c12"


class FakeDomains(Domains):
    """Domains that need their vGPU to start; definitions outlive a boot, running does not."""

    def __init__(self, host: FakeSysfs) -> None:
        self.host = host
        self.devices: dict[str, str] = {}
        self.running: set[str] = set()
        self.started: list[str] = []
        self.refusals: list[VgpuctlError] = []
        self.while_starting: threading.Event | None = None
        self.go_on = threading.Event()

    def start(self, vm: str, _check: Callable[[str, bool], None]) -> ActionResult:
        self.started.append(vm)
        if self.while_starting is not None:
            self.while_starting.set()
            assert self.go_on.wait(60)
        if self.refusals:
            raise self.refusals.pop(0)
        if vm in self.running:
            return ActionResult(changed=False)
        device = self.devices[vm]
        passed = self.host.driver_of(device) == "vfio-pci"
        if not passed and not (mdev_devices(self.host.paths) / device).exists() and not self._typed(device):
            raise Fatal("vm.start_failed", f"device {device} is not there")
        self.running.add(vm)
        return ActionResult(changed=True)

    def _typed(self, device: str) -> bool:
        file = self.host.paths.pci(device) / "nvidia/current_vgpu_type"
        return file.exists() and file.read_text().strip() != "0"

    def stop(self, vm: str, grace_seconds: int) -> ActionResult:
        self.running.discard(vm)
        return ActionResult(changed=True)

    def undefine(self, vm: str) -> ActionResult:
        self.devices.pop(vm, None)
        return ActionResult(changed=True)


class FakeSwitches(GpuSwitches):
    """Virtual functions that come with the driver's script."""

    def __init__(self, host: FakeSysfs, ledger: Ledger, mig: FakeMig) -> None:
        self.host, self._ledger, self.failures = host, ledger, 0
        functions = Functions(self._on, self.enable_virtual_functions, self.disable_virtual_functions, lambda _: None)
        self.modes = MigModes(ledger, mig, functions)
        self.driver, self.limits = FakeSetting({T4: BEST_EFFORT}), FakeSetting({T4: OWN_LIMIT})
        self.mixed = FakeSetting({L40S: False})
        drivers = SettingDrivers(schedulers=self.driver, mixed_sizes=self.mixed)
        records = partial(LedgerRecords, ledger.file, ledger.boot_id)
        self.power = PowerLimits(self.limits, ledger, partial(check_ours, ledger))
        self.settings = GpuSettings(drivers, records, GpuChecks(partial(check_ours, ledger), lambda _: None))

    def _on(self, gpu: str) -> bool:
        return (self.host.paths.pci(gpu) / "sriov_numvfs").read_text() != "0\n"

    def enable_virtual_functions(self, gpu: str) -> ActionResult:
        if self.failures:
            self.failures -= 1
            raise Retryable("gpu.sriov_failed", "Cannot obtain unbindLock")
        self._ledger.cards.check(gpu)
        if self._on(gpu):
            return ActionResult(changed=False)
        self.host.enable_functions(gpu, self.host.functions)
        return ActionResult(changed=True)

    def disable_virtual_functions(self, gpu: str) -> ActionResult:
        return ActionResult(changed=True)


class Machine:
    """A host with an agent that can be booted again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.boots = self.attempt = 0
        self.mig = FakeMig()
        self.cards: tuple[GpuCard, ...] = ()
        self.silent = 0
        """So many times the driver does not say which cards there are."""
        self._new_host()
        self.libvirt = FakeDomains(self.host)
        self._start_agent()
        self.ledger.manage_gpus((T4, L40S))
        self.restorer.run()

    def _new_host(self) -> None:
        self.boots += 1
        self.host = FakeSysfs(self.root / f"boot-{self.boots}")
        self.host.add_t4(T4)
        self.host.add_l40s(L40S, enabled=0)
        self.host.add_drivers("nvidia", "vfio-pci")
        for gpu in (T4, L40S):
            self.host.bind(gpu, "nvidia")

    def _start_agent(self) -> None:
        boot = f"boot-{self.boots}"
        self.ledger = Ledger(self.root / "ledger", site="s", epoch=1, boot_id=boot, cards=self._ask_cards)
        self.timing, self.turns = FakeTiming(), Turns()
        self.wanted = RestoreList(self.host.paths, self.ledger, boot)
        self.switches = FakeSwitches(self.host, self.ledger, self.mig)
        files = DeviceFiles(self.host.paths, self.ledger, self.timing, dict, self.host.write)
        kinds = kinds_of(files, self.mig, Nvml())
        storage = Storage(self.host.paths, self.ledger)
        networks = LibvirtNetworks(Libvirt("test:///default"), self.ledger, HostBridges(self.host.paths))
        nics, logs = network_functions(files), ConsoleLogs(self.host.paths)
        made = (
            Settler(self.ledger, storage, kinds, self.libvirt, nics, self.switches),
            VgpuParameterFiles(files, kinds),
            logs,
            nics,
            SavedMemory(Libvirt("test:///default"), self.libvirt, self.ledger, storage.directory),
        )
        parts = Parts(self.host.paths, storage, kinds, self.switches, self.libvirt, networks, *made)
        self.performer = Performer(self.ledger, self.turns, self.wanted, parts.handlers)
        self.restorer = Restorer(self.wanted, self.turns, self.timing, parts.handlers)

    def _ask_cards(self) -> tuple[GpuCard, ...]:
        self.silent -= 1
        return () if self.silent >= 0 else self.cards

    def sees(self, *cards: GpuCard) -> None:
        """The driver has told an observation so."""
        self.cards = cards
        self.ledger.cards.saw(cards)

    def reboot(self, *cards: GpuCard) -> None:
        """Kernel memory and running guests are lost; the ledger and the definitions are files. ``cards``: those that
        are there now, if others."""
        self.ledger.close()
        self.cards = cards or self.cards
        self._new_host()
        self.libvirt.host = self.host
        self.libvirt.running.clear()
        self.libvirt.started.clear()
        self._start_agent()

    def restart_agent(self) -> None:
        self.ledger.close()
        self._start_agent()

    def do(self, *actions: HostAction) -> None:
        for action in actions:
            self.attempt += 1
            token = FencingToken(site="s", epoch=1, operation=f"op{self.attempt}", attempt=1)
            self.performer.perform(action, token)

    def run_vm(self, vm: str, uuid: str = UUID, policy: BootPolicy = "local") -> None:
        self.libvirt.devices[vm] = uuid
        self.do(MakeVgpu(vm=vm, uuid=uuid, parent=T4, type_name="GRID T4-2Q"), StartDomain(vm=vm, boot_policy=policy))

    def run_typed_vm(self, vm: str) -> None:
        self.libvirt.devices[vm] = VF1
        self.do(EnableVirtualFunctions(gpu=L40S), MakeVgpu(vm=vm, parent=VF1, type_name="NVIDIA L40S-2Q"))
        self.do(StartDomain(vm=vm))

    def run_whole_vm(self, vm: str, gpu: str = T4) -> None:
        self.libvirt.devices[vm] = gpu
        self.do(BindVfio(vm=vm, gpu=gpu, model="GRID T4"), StartDomain(vm=vm))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.fault("F18")
def test_after_a_reboot_vgpus_are_made_and_vms_started_again_with_no_controller(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    assert not machine.wanted.is_restoring()
    machine.reboot()
    assert machine.wanted.is_restoring()
    machine.restorer.run()
    assert machine.libvirt.running == {"a", "b"}
    assert machine.wanted.problems() == ()
    assert not machine.wanted.is_restoring()
    owner = machine.ledger.owner(f"mdev:{UUID}")
    assert owner is not None
    assert owner.vm == "a"


@pytest.mark.fault("F18")
def test_after_a_reboot_vms_have_their_whole_gpus_again_and_what_was_given_back_stays_so(machine: Machine) -> None:
    machine.run_whole_vm("a")
    machine.run_whole_vm("b", L40S)
    machine.do(StopDomain(vm="b", grace_seconds=0), RestoreDriver(vm="b", gpu=L40S))
    machine.reboot()
    assert machine.host.driver_of(T4) == "nvidia"
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    assert (machine.host.driver_of(T4), machine.host.driver_of(L40S)) == ("vfio-pci", "nvidia")
    machine.do(StopDomain(vm="a", grace_seconds=0), RestoreDriver(vm="a", gpu=T4))
    assert machine.host.driver_of(T4) == "nvidia"


def test_every_device_of_a_vm_is_made_again_and_one_that_was_removed_is_not(machine: Machine) -> None:
    machine.run_typed_vm("a")
    machine.do(MakeVgpu(vm="a", uuid=UUID, parent=T4, type_name="GRID T4-2Q"))
    machine.do(MakeVgpu(vm="a", uuid=OTHER, parent=T4, type_name="GRID T4-2Q"), RemoveMdev(vm="a", uuid=OTHER))
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.running == {"a"}
    assert [link.name for link in mdev_devices(machine.host.paths).iterdir()] == [UUID]
    assert (machine.host.paths.pci(VF1) / "nvidia/current_vgpu_type").read_text().strip() != "0"


def test_a_second_reboot_is_restored_like_the_first(machine: Machine) -> None:
    machine.run_vm("a")
    for _ in range(2):
        machine.reboot()
        machine.restorer.run()
        assert machine.libvirt.running == {"a"}


def test_a_restart_of_the_agent_alone_starts_nothing_that_somebody_stopped(machine: Machine) -> None:
    machine.run_vm("a")
    machine.libvirt.running.clear()
    machine.restart_agent()
    machine.restorer.run()
    assert machine.libvirt.running == set()


@pytest.mark.parametrize(
    "end",
    [
        (StopDomain(vm="a", grace_seconds=0),),
        (StopDomain(vm="a", grace_seconds=0), RemoveMdev(vm="a", uuid=UUID)),
        (StopDomain(vm="a", grace_seconds=0), RemoveMdev(vm="a", uuid=UUID), UndefineDomain(vm="a")),
    ],
)
def test_a_vm_that_was_stopped_or_deleted_is_not_started(machine: Machine, end: tuple[HostAction, ...]) -> None:
    machine.run_vm("a")
    machine.do(*end)
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.started == []
    assert not list(mdev_devices(machine.host.paths).iterdir())


def test_a_vm_that_waits_for_its_controller_is_left_alone(machine: Machine) -> None:
    machine.run_vm("a", policy="ask-controller")
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.started == []


def test_a_vm_whose_start_was_never_confirmed_is_left_to_its_operation(machine: Machine) -> None:
    machine.libvirt.refusals = [Fatal("vm.start_failed", "QEMU said no")]
    with pytest.raises(Fatal):
        machine.run_vm("a")
    machine.reboot()
    machine.restorer.run()
    assert machine.libvirt.started == []


@pytest.mark.fault("F64")
def test_virtual_functions_come_back_without_any_vm_and_stay_off_where_they_were_switched_off(machine: Machine) -> None:
    machine.do(EnableVirtualFunctions(gpu=L40S))
    machine.reboot()
    machine.restorer.run()
    assert machine.host.paths.pci(VF1).exists()
    machine.do(DisableVirtualFunctions(gpu=L40S))
    machine.reboot()
    machine.restorer.run()
    assert not machine.host.paths.pci(VF1).exists()


def test_a_gpu_that_was_given_back_is_not_touched(machine: Machine) -> None:
    machine.do(EnableVirtualFunctions(gpu=L40S))
    machine.run_vm("a")
    machine.ledger.manage_gpus(())
    machine.reboot()
    machine.restorer.run()
    assert not machine.host.paths.pci(VF1).exists()
    assert machine.libvirt.running == set()
    assert len(machine.wanted.problems()) == 1


def test_it_goes_on_trying_while_driver_and_libvirt_are_not_up_yet(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    machine.switches.failures = 2
    machine.libvirt.refusals = [Retryable("libvirt.unreachable", "libvirt is not running on the host")]
    machine.restorer.run()
    assert machine.libvirt.running == {"a", "b"}
    assert machine.timing.slept == [1, 1, 1]


def test_a_vm_that_cannot_be_restored_says_why_and_does_not_keep_others_from_running(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    machine.libvirt.refusals = [Conflict("vm.foreign_domain", "the host has a domain with this id that is not ours")]
    machine.restorer.run()
    assert machine.libvirt.running == {"b"}
    assert machine.wanted.problems() == (
        "VM a is not running again after the reboot: the host has a domain with this id that is not ours",
    )
    machine.do(StartDomain(vm="a"))
    assert machine.wanted.problems() == ()


def test_a_vm_that_somebody_undefined_is_no_problem_of_the_host(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot()
    machine.libvirt.refusals = [NotFound("vm.not_found", "the VM is not defined on this host")]
    machine.restorer.run()
    assert machine.wanted.problems() == ()
    assert machine.timing.slept == []


def test_it_gives_up_after_a_while_and_leaves_the_problem_to_be_seen(machine: Machine) -> None:
    machine.run_vm("a")
    machine.reboot()
    machine.libvirt.refusals = [Fatal("vm.start_failed", "no KVM")] * 100
    machine.restorer.run()
    assert len(machine.libvirt.started) < 20
    assert machine.wanted.problems() == ("VM a is not running again after the reboot: no KVM",)
    machine.restart_agent()
    machine.libvirt.refusals = []
    machine.restorer.run()
    assert machine.libvirt.running == set()


def test_an_agent_that_is_restarted_in_the_middle_goes_on(machine: Machine) -> None:
    machine.run_vm("a")
    machine.run_typed_vm("b")
    machine.reboot()
    machine.libvirt.while_starting = threading.Event()
    machine.restorer.start()
    assert machine.libvirt.while_starting.wait(60)
    machine.restorer.stop()
    machine.libvirt.go_on.set()
    machine.performer.finish()
    assert machine.libvirt.running == {"a"}
    machine.restart_agent()
    machine.restorer.run()
    assert machine.libvirt.running == {"a", "b"}
