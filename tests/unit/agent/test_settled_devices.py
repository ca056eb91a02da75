# SPDX-License-Identifier: Apache-2.0
"""Devices of every kind on a host whose ledger was lost: settled they are their VM's, and go as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import libvirt
import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mdev import mdev_devices
from orchestrator.agent.gpu_settings import SettingDrivers, VgpuParameterFiles
from orchestrator.agent.gpu_switches import Chosen, GpuSwitches
from orchestrator.agent.images.store import Storage
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.consoles import ConsoleLogs
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import LibvirtNetworks
from orchestrator.agent.libvirt.saved_memory import SavedMemory
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.nvml.reading import NvmlGpu, NvmlReading
from orchestrator.agent.observing import observe_gpus
from orchestrator.agent.performing import Parts, Performer
from orchestrator.agent.settling import Settler
from orchestrator.agent.sysfs.bridges import HostBridges
from orchestrator.agent.turns import Turns
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.host_actions import FencingToken, HostAction, ManageGpus
from orchestrator.core.actions.settle_ledger import FoundMigMode, KnownVm, SettleLedger
from orchestrator.core.attachments import make, observed_on, remove
from orchestrator.core.gpu.device import Device, DeviceKind
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from tests.fakes.fake_gpu_settings import BEST_EFFORT, FakeSetting
from tests.fakes.fake_mig import FakeMig
from tests.fakes.fake_nics import FakeNicLinks
from tests.unit.agent.fake_a100 import A100, A100Host
from tests.unit.agent.fake_driver import FakeUses
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, AUDIO, L40S, VF = "0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:02:00.1"
MDEV = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
VM = "3f5b8a52-7a35-4e57-9a8b-0b7a0d6b9c01"
_SAID = NvmlGpu(
    uuid=None, serial=None, name="GPU", memory_mib=16384, mig_enabled=None, mig_pending=None, instances=(),
    heterogeneous=None, module_id=None, types=(), problems=(),
)  # fmt: skip


class Driver(FakeUses):
    """Lists the GPUs that it has."""

    def __init__(self, host: FakeSysfs, mig: FakeMig) -> None:
        super().__init__(host)
        self._mig = mig

    def read(self) -> NvmlReading:
        bound = [gpu for gpu in (T4, L40S, A100) if self.host.driver_of(gpu) == "nvidia"]
        said = {gpu: replace(_SAID, mig_enabled=self._mig.mode.get(gpu)) for gpu in bound}
        return NvmlReading(driver_version="580.95.02", gpus=said)


def _with_t4_and_l40s(root: Path) -> FakeSysfs:
    fake = FakeSysfs(root)
    fake.add_t4(T4)
    fake.add_function(AUDIO, device="10f0", pci_class="0x040300")
    fake.join_groups(T4, AUDIO)
    fake.add_l40s(L40S)
    fake.add_drivers("snd_hda_intel")
    fake.bind(AUDIO, "snd_hda_intel")
    return fake


class Host:
    """With an agent whose ledger can be taken away."""

    def __init__(self, root: Path, gpus: tuple[str, ...], *, mediated: bool) -> None:
        self.gpus = gpus
        self.mig = FakeMig(mode={A100: False})
        self.fake = A100Host(root, self.mig, mediated=mediated) if A100 in gpus else _with_t4_and_l40s(root)
        self.fake.add_drivers("nvidia", "vfio-pci", "snd_hda_intel")
        for address in gpus:
            self.fake.bind(address, "nvidia")
        self._sriov_manage()
        self.schedulers = FakeSetting({T4: BEST_EFFORT, L40S: BEST_EFFORT})
        self.mixed_sizes = FakeSetting({L40S: False})
        self.libvirt: Any = libvirt.open("test:///default")
        self._attempt = 0
        self.start()
        self.do(ManageGpus(gpus=gpus))

    def _sriov_manage(self) -> None:
        """Functions go and come: of the T4 there are none."""
        path, numvfs = self.fake.paths.sriov_manage, self.fake.paths.pci_devices
        path.parent.mkdir(parents=True, exist_ok=True)
        count = 'case "$2" in *03:00.0) echo 4;; *) echo 2;; esac'
        path.write_text(
            f'#!/bin/sh\ncase "$1" in -e) {count};; -d) echo 0;; esac > {numvfs}/$2/sriov_numvfs\n', encoding="utf-8"
        )
        path.chmod(0o755)

    def start(self, *, found: bool = False) -> None:
        """``found``: files of VMs are there, so that a ledger which is new was lost."""
        paths, timing, connection = self.fake.paths, FakeTiming(), Libvirt("test:///default")
        self.ledger = Ledger(paths.ledger, site="s", epoch=1, boot_id="boot-1", found=found)
        self.driver = Driver(self.fake, self.mig)
        files = DeviceFiles(paths, self.ledger, timing, lambda: {1148: "NVIDIA L40S-2Q", 1054: "GRID A100D-1-20C"},
                            self.fake.write)  # fmt: skip
        self.kinds = kinds_of(files, self.mig, self.driver)
        drivers = SettingDrivers(schedulers=self.schedulers, mixed_sizes=self.mixed_sizes)
        switches = GpuSwitches(
            paths,
            self.ledger,
            timing,
            self.driver,
            self.kinds,
            Chosen(self.mig, drivers, FakeSetting()),
        )
        storage, domains = Storage(paths, self.ledger), Domains(connection, self.ledger, timing)
        nics = NicFunctions(files, FakeNicLinks())
        parts = Parts(
            paths, storage, self.kinds, switches, domains, LibvirtNetworks(connection, self.ledger, HostBridges(paths)),
            Settler(self.ledger, storage, self.kinds, domains, nics, switches),
            VgpuParameterFiles(files, self.kinds), ConsoleLogs(paths), nics,
            SavedMemory(connection, domains, self.ledger, storage.directory),
        )  # fmt: skip
        self.wanted = RestoreList(paths, self.ledger, "boot-1")
        self._performer = Performer(self.ledger, Turns(), self.wanted, parts.handlers)

    def do(self, action: HostAction) -> None:
        self._attempt += 1
        self._performer.perform(action, FencingToken(site="s", epoch=1, operation=f"op{self._attempt}", attempt=1))

    def lose_ledger(self) -> None:
        self.ledger.close()
        for path in self.fake.paths.ledger.iterdir():
            path.unlink()
        self.start(found=True)

    def settle(self, *devices: Device) -> SettleLedger:
        vm = KnownVm(
            vm=VM, volume=f"{VM}.qcow2", seed=f"{VM}.iso", devices=devices, running=True, boot_policy="local",
            adopted=False,
        )  # fmt: skip
        modes = (FoundMigMode(gpu=A100, on=False),) if self.mig.mode[A100] else ()
        return SettleLedger(gpus=self.gpus, functions=(), vms=(vm,), mig_modes=modes)

    def owners(self) -> set[str | None]:
        gpus = observe_gpus(self.fake.paths, self.ledger, self.kinds, self.driver.read())
        return {one.owner for gpu in gpus for one in observed_on(gpu)}

    def known(self) -> dict[str, list[str]]:
        """What the ledger's tables hold that is settled; of owners without what a device was made as."""
        columns = {name: "*" for name, how in TABLES.items() if how == "settled"} | {"owners": "object, vm"}
        with self.ledger.file.read():
            rows = {name: self.ledger.file.all(f"SELECT {what} FROM {name}") for name, what in columns.items()}
        return {name: sorted(map(str, found)) for name, found in rows.items()}

    def state(self) -> dict[str, object]:
        """All that a VM's device changes on the host."""
        functions = sorted(path.name for path in self.fake.paths.pci_devices.iterdir() if ":" in path.name)

        def text(address: str, name: str) -> str:
            path = self.fake.paths.pci(address) / name
            return path.read_text(encoding="utf-8") if path.exists() else ""

        files = ("driver_override", "sriov_numvfs", "nvidia/current_vgpu_type", "nvidia/vgpu_params")
        return {
            "functions": {one: (self.fake.driver_of(one), *(text(one, name) for name in files)) for one in functions},
            "mdevs": sorted(path.name for path in mdev_devices(self.fake.paths).iterdir()),
            "mig": dict(self.mig.mode),
            "instances": self.mig.instances(A100),
            "schedulers": {gpu: self.schedulers.read(gpu) for gpu in (T4, L40S)},
            "mixed": {L40S: self.mixed_sizes.read(L40S)},
        }


TABLES = {
    "owners": "settled",
    "gpus": "settled",
    "functions": "settled",
    "mig_modes": "settled",
    "schedulers": "settled",
    "scheduler_users": "settled",
    "mixed_sizes": "settled",
    "mixed_sizes_users": "settled",
    "wanted": "settled with the VMs (test_lost_ledger.py)",
    "meta": "the site is in the agent's configuration, the epoch is raised",
    "attempts": "the epoch is raised, so that all of them are old",
    "seen_cards": "the driver is asked again",
    "power_limits": "controllers set them again where a GPU keeps to another one",
}
"""Of the ledger: what comes back where it was lost."""


@dataclass(frozen=True)
class Case:
    kind: DeviceKind
    device: Callable[[Host], Device]
    mediated: bool = False


def _on_a100(host: Host) -> Device:
    assert isinstance(host.fake, A100Host)
    return host.fake.device(0, 2)


_T4 = Device(kind="mdev", gpu=T4, parent=T4, type_name="GRID T4-2Q", name=MDEV)
_L40S = Device(kind="vendor_vfio", gpu=L40S, parent=VF, type_name="NVIDIA L40S-2Q", name=VF)
_EQUAL = Scheduler(policy="equal_share")
CASES = {
    "mdev": Case("mdev", lambda _: _T4),
    "mdev, with a scheduler": Case("mdev", lambda _: replace(_T4, scheduler=_EQUAL)),
    "vendor VFIO": Case("vendor_vfio", lambda _: _L40S),
    "vendor VFIO, with a scheduler": Case("vendor_vfio", lambda _: replace(_L40S, scheduler=_EQUAL)),
    "vendor VFIO, one of several sizes": Case("vendor_vfio", lambda _: replace(_L40S, placement_id=24)),
    "MIG-backed, on a typed function": Case("mig_backed", _on_a100),
    "MIG-backed, as mediated device": Case("mig_backed", _on_a100, mediated=True),
    "whole GPU with an audio function": Case(
        "passthrough", lambda _: Device(kind="passthrough", gpu=T4, parent=T4, type_name="GRID T4", name=T4)
    ),
    "whole GPU with virtual functions": Case(
        "passthrough", lambda _: Device(kind="passthrough", gpu=L40S, parent=L40S, type_name="NVIDIA L40S", name=L40S)
    ),
}


def test_of_every_table_it_is_said_what_becomes_of_it(host: Host) -> None:
    with host.ledger.file.read():
        found = host.ledger.file.all("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert {str(row[0]) for row in found} == set(TABLES)


def test_every_kind_is_tried() -> None:
    assert {case.kind for case in CASES.values()} == set(get_args(DeviceKind))


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def host(tmp_path: Path, case: Case) -> Iterator[Host]:
    made = Host(tmp_path, (A100,) if case.kind == "mig_backed" else (T4, L40S), mediated=case.mediated)
    yield made
    made.ledger.close()


def test_a_device_whose_record_was_lost_is_its_vms_again_and_its_host_as_before_when_it_goes(
    host: Host, case: Case
) -> None:
    before, device = host.state(), case.device(host)
    for action in make(VM, device):
        host.do(action)
    running, known = host.state(), host.known()
    host.lose_ledger()
    assert host.owners() == {None}
    host.do(host.settle(device))
    assert (host.owners(), host.state(), host.known()) == ({VM}, running, known)
    for action in make(VM, device):  # as an operation that goes on does
        host.do(action)
    assert host.state() == running
    for action in remove(VM, device):
        host.do(action)
    assert host.owners() <= {None}
    host.do(ManageGpus(gpus=()))
    assert host.state() == before


def test_a_device_that_was_not_settled_with_the_rest_is_taken_up_later(host: Host, case: Case) -> None:
    """As where an older agent wrote the ledger again and left it nobody's."""
    device = case.device(host)
    for action in make(VM, device):
        host.do(action)
    host.lose_ledger()
    host.do(replace(host.settle(), vms=()))
    host.do(host.settle(device))
    assert host.owners() == {None}, "its VM's domain is not ours"
    host.ledger.claim(f"domain:{VM}", VM)
    host.do(host.settle(device))
    assert host.owners() == {VM}
