# SPDX-License-Identifier: Apache-2.0
"""Fabric partitions of VMs, over the lab's fabric manager and its fmpm."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.fabric.fmpm import Fmpm
from orchestrator.agent.fabric.observing import observe_fabric, without_waiting
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.reading import NvmlGpu, NvmlReading
from orchestrator.agent.observing import observe_gpus
from orchestrator.core.actions.fabric import ActivateFabricPartition, DeactivateFabricPartition
from orchestrator.core.actions.host_actions import ActionResult, BindVfio, HostAction, RestoreDriver
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown, VgpuctlError
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.fabric import FabricPlace, FabricSnapshot
from orchestrator.core.gpu.health import GpuSignal
from tests.fakes.fabric_host import GPUS, MODULES, FabricHost, fabric_of
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_driver import FakeUses
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming
from tests.unit.agent.refusals import refused

MODEL = "NVIDIA H100XM"


class FakeDriver(FakeUses):
    """Tells the module id of a GPU as long as it has it."""

    def __init__(self, host: FakeSysfs) -> None:
        super().__init__(host)
        self.uuids = {gpu["pci"]: gpu["uuid"] for gpu in fabric_of()["gpus"]}
        self.lost: set[str] = set()

    def read(self) -> NvmlReading:
        said = {
            gpu: NvmlGpu(
                uuid=self.uuids[gpu], serial=None, name="NVIDIA H100 80GB HBM3", memory_mib=81559, mig_enabled=False,
                mig_pending=False, instances=(), heterogeneous=None, module_id=module, types=(), problems=(),
            )
            for gpu, module in zip(GPUS, MODULES, strict=True)
            if self.host.driver_of(gpu) == "nvidia" and gpu not in self.lost
        }  # fmt: skip
        return NvmlReading(driver_version="580.105.06", gpus=said)


class Bench:
    def __init__(self, root: Path, socket: Path, device: str = "2330") -> None:
        self.host = FakeSysfs(root)
        self.host.add_drivers("nvidia", "vfio-pci")
        for gpu in GPUS:
            self.host.add_function(gpu, device=device)
            self.host.bind(gpu, "nvidia")
        self.driver = FakeDriver(self.host)
        self.fabric = FabricHost(self.host.paths, socket)
        self.fabric.start()
        self.boot("boot-1")
        self.ledger.manage_gpus(GPUS)

    def boot(self, boot_id: str) -> None:
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id=boot_id)
        self.files = DeviceFiles(self.host.paths, self.ledger, FakeTiming(), dict, self.host.write)
        kinds = kinds_of(self.files, FakeMig(), self.driver)
        self.kinds = kinds
        self.handlers = {action: do for kind in kinds.values() for action, do in kind.handlers.items()}

    def do(self, action: HostAction) -> ActionResult:
        return self.handlers[type(action)](action)

    def take(self, partition: int, vm: str = "a") -> ActivateFabricPartition:
        """Binds its GPUs; what activates it."""
        action = activation(partition, self.modules(partition), vm)
        for gpu in action.gpus:
            self.do(BindVfio(vm=vm, gpu=gpu, model=MODEL))
        return action

    def modules(self, partition: int) -> tuple[int, ...]:
        return next(tuple(one["gpus"]) for one in self.fabric.fabric["partitions"] if one["id"] == partition)

    def seen(self) -> FabricSnapshot:
        gpus = observe_gpus(self.host.paths, self.ledger, self.kinds, self.driver.read())
        found = observe_fabric(self.host.paths, self.ledger, Fmpm(self.host.paths), gpus)
        assert found is not None
        return found

    def refused(self, action: HostAction, family: type[VgpuctlError], code: str) -> VgpuctlError:
        return refused(code, family, lambda: self.do(action))

    def lose_ledger(self) -> None:
        self.ledger.close()
        for path in self.host.paths.ledger.iterdir():
            path.unlink()
        self.boot("boot-1")
        self.ledger.manage_gpus(GPUS)

    def open(self, gpu: str) -> None:
        """As a QEMU has it."""
        self.host.hold_open(self.host.node_of(self.host.paths.pci(gpu)), process=4242)

    def close(self) -> None:
        shutil.rmtree(self.host.paths.proc / "4242")

    def give_back(self, action: ActivateFabricPartition) -> None:
        self.do(action.inverse())
        for gpu in reversed(action.gpus):
            self.do(RestoreDriver(vm=action.vm, gpu=gpu))


def activation(partition: int, modules: tuple[int, ...], vm: str = "a") -> ActivateFabricPartition:
    gpus = tuple(GPUS[MODULES.index(module)] for module in modules)
    return ActivateFabricPartition(vm=vm, partition=partition, modules=modules, gpus=gpus)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as short:
        made = Bench(tmp_path, Path(short) / "s")
        yield made
        made.fabric.stop()


def test_a_partition_is_activated_once_and_given_back_with_its_gpus_reset(bench: Bench) -> None:
    action = bench.take(1)
    assert bench.do(action).changed
    assert not bench.do(action).changed
    assert bench.fabric.active() == {1}
    shown = bench.seen().partition(1)
    assert shown is not None
    assert (shown.active, shown.owner, set(shown.modules)) == (True, "a", {1, 2, 3, 4})
    resets = bench.host.writes.count(("reset", "1"))
    assert bench.do(action.inverse()).changed
    assert bench.host.writes.count(("reset", "1")) == resets + 4
    assert not bench.do(action.inverse()).changed
    assert bench.fabric.active() == set()
    for gpu in action.gpus:
        bench.do(RestoreDriver(vm="a", gpu=gpu))
    assert {bench.host.driver_of(gpu) for gpu in GPUS} == {"nvidia"}


def test_partitions_beside_each_other_do_not_notice_each_other(bench: Bench) -> None:
    first, second = bench.take(1), bench.take(5, "b")
    bench.do(first)
    bench.do(second)
    bench.give_back(first)
    assert bench.fabric.active() == {5}


@pytest.mark.fault("F94")
def test_gpus_that_are_not_the_partition_are_never_joined(bench: Bench) -> None:
    """The trap: the first four by address are modules 7, 5, 6 and 8."""
    right = bench.take(1)
    by_order = replace(right, gpus=GPUS[:4])
    assert set(by_order.gpus) != set(right.gpus)
    bench.refused(by_order, Conflict, "fabric.members_differ")
    bench.refused(replace(right, gpus=right.gpus[:3]), Conflict, "fabric.members_differ")
    bench.refused(replace(right, modules=right.modules[::-1]), Conflict, "fabric.members_differ")
    bench.refused(replace(right, vm="b"), Conflict, "fabric.members_differ")
    bench.refused(replace(right, partition=2), Fatal, "fabric.partition_differs")
    assert bench.fabric.active() == set()


@pytest.mark.fault("F90")
def test_without_the_fabric_manager_nothing_is_activated_and_it_is_said(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.stop()
    bench.refused(action, Retryable, "fabric.down")
    assert bench.seen().problem == "the host's fabric manager does not answer"
    bench.fabric.start()
    assert bench.seen().problem is None
    assert bench.do(action).changed


@pytest.mark.fault("F90")
def test_a_fabric_manager_of_another_version_than_the_driver_is_not_used(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.installed("570.172.07")
    bench.refused(action, Fatal, "fabric.version")
    assert bench.seen().problem == "the host's fabric manager is 570.172.07 and its driver 580.105.06"


@pytest.mark.fault("F92")
def test_what_could_not_be_joined_is_unbound_and_nothing_is_held(bench: Bench) -> None:
    bench.fabric.by_hand("activate", 3)  # overlaps
    action = bench.take(1)
    bench.refused(action, Conflict, "fabric.in_use")
    bench.give_back(action)
    assert bench.ledger.owned("partition:") == {}
    assert {bench.host.driver_of(gpu) for gpu in GPUS} == {"nvidia"}
    assert bench.fabric.active() == {3}


def test_a_partition_that_somebody_else_activated_is_left_alone(bench: Bench) -> None:
    bench.fabric.by_hand("activate", 1)
    action = bench.take(1)
    bench.refused(action, Conflict, "fabric.foreign")
    assert not bench.do(action.inverse()).changed
    assert bench.fabric.active() == {1}
    shown = bench.seen().partition(1)
    assert shown is not None
    assert shown.active
    assert shown.owner is None


@pytest.mark.fault("F91")
def test_one_that_was_restarted_and_waits_is_told_what_is_active_before_anything_changes(bench: Bench) -> None:
    first = bench.take(1)
    bench.do(first)
    bench.fabric.restart(FABRIC_MODE_RESTART="1")
    second = bench.take(5, "b")
    assert bench.do(second).changed
    assert bench.fabric.active() == {1, 5}
    bench.fabric.restart(FABRIC_MODE_RESTART="1")
    bench.give_back(first)
    assert bench.fabric.active() == {5}


@pytest.mark.fault("F91")
def test_one_that_was_restarted_and_forgot_harms_no_gpu_that_a_vm_drives(bench: Bench) -> None:
    action = bench.take(1)
    bench.do(action)
    bench.open(action.gpus[2])
    bench.fabric.restart()
    before = list(bench.host.writes)
    bench.refused(action, Conflict, "fabric.forgotten")
    bench.refused(action.inverse(), Conflict, "vgpu.in_use")
    assert bench.host.writes == before
    assert bench.fabric.active() == set()
    bench.fabric.restart(FABRIC_MODE_RESTART="1")
    bench.do(action)  # it is told, and the GPUs are let alone
    assert bench.fabric.active() == {1}


def test_after_a_reboot_nothing_is_active_and_the_same_is_activated_again(bench: Bench) -> None:
    bench.do(bench.take(1))
    for gpu in GPUS:
        bench.host.bind(gpu, "nvidia")
    bench.fabric.restart(FABRIC_MODE_RESTART="1")
    bench.boot("boot-2")
    shown = bench.seen().partition(1)
    assert shown is not None
    assert shown.owner is None
    action = bench.take(1)
    assert bench.do(action).changed
    assert bench.fabric.active() == {1}


def test_a_partition_is_not_taken_apart_while_a_gpu_of_it_is_open_or_does_not_reset(bench: Bench) -> None:
    action = bench.take(1)
    bench.do(action)
    bench.open(action.gpus[0])
    bench.refused(action.inverse(), Conflict, "vgpu.in_use")
    bench.close()
    (bench.host.paths.pci(action.gpus[1]) / "config").write_bytes(b"\xff\xff")
    bench.refused(action.inverse(), Fatal, "gpu.reset_failed")
    assert bench.fabric.active() == {1}


def test_without_shared_nvswitch_mode_that_is_said(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.restart(FABRIC_MODE="0")
    bench.refused(action, Fatal, "fabric.not_shared")
    assert bench.seen().problem == "the host's fabric manager does not share the fabric"


def test_a_host_without_its_program_is_told_what_to_bring(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.fmpm.unlink()
    error = bench.refused(action, Fatal, "fabric.no_tool")
    assert "fmpm" in error.message
    assert bench.seen().problem == error.message


LIES = {
    "no JSON": "print('fine')",
    "deep JSON": "print('[' * 100000)",
    "a list": "print('[]')",
    "no GPUs": 'print(\'{"partitionInfo": [{"partitionId": 1, "isActive": 0, "numGpus": 0, "gpuInfo": []}]}\')',
    "a large id": 'print(\'{"partitionInfo": [{"partitionId": 9999, "isActive": 0, "numGpus": 1, "gpuInfo": '
    '[{"physicalId": 1}]}]}\')',
    "words": 'print(\'{"partitionInfo": [{"partitionId": "1", "isActive": 0, "numGpus": 1, "gpuInfo": '
    '[{"physicalId": 1}]}]}\')',
}


@pytest.mark.parametrize("lie", LIES)
def test_a_program_that_lies_is_not_believed(bench: Bench, lie: str) -> None:
    action = bench.take(7)
    bench.fabric.program(LIES[lie])
    bench.refused(action, Fatal, "fabric.answer_invalid")
    assert bench.ledger.owned("partition:") == {}


def test_a_program_that_prints_without_end_is_stopped(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.program("while True:\n    print('x' * 4096)")
    bench.refused(action, Unknown, "fabric.answer_invalid")


def test_one_that_says_done_and_did_nothing_is_found_out(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.program("sys.exit(0 if '-a' in sys.argv else main(sys.argv[1:]))")
    bench.refused(action, Fatal, "fabric.refused")
    assert bench.ledger.owned("partition:") == {}


def test_an_answer_that_was_lost_is_read_from_the_fabric_manager(bench: Bench) -> None:
    action = bench.take(7)
    bench.fabric.program(
        "code = main(sys.argv[1:])\n"
        "if '-a' in sys.argv:\n    print('Failed to activate partition. fmReturn: -5')\n    code = 251\nsys.exit(code)"
    )
    assert bench.do(action).changed
    assert bench.fabric.active() == {7}


def test_another_place_of_the_program_is_named_in_a_file_of_the_host(bench: Bench) -> None:
    config = bench.host.paths.etc / "vgpuctl-agent/fabric.json"
    elsewhere = bench.host.paths.root / "opt/fmpm"
    elsewhere.parent.mkdir()
    bench.fabric.fmpm.rename(elsewhere)
    config.write_text(f'{{"fmpm": "{elsewhere}", "socket": "{bench.fabric.socket}"}}')
    assert bench.do(bench.take(7)).changed
    for wrong in ('{"fmpm": "fmpm"}', '{"fmpn": "/x"}', "[", "7", '{"socket": 7}'):
        config.write_text(wrong)
        assert "fabric.json cannot be used" in str(bench.seen().problem)


def test_a_host_without_baseboard_is_not_asked(bench: Bench) -> None:
    bench.fabric.stop()
    assert observe_fabric(bench.host.paths, bench.ledger, Fmpm(bench.host.paths), ()) is None
    assert isinstance(activation(1, (1, 2, 3, 4)).inverse(), DeactivateFabricPartition)


def test_a_partition_whose_record_was_lost_is_its_vms_again_and_given_back_with_its_gpus(bench: Bench) -> None:
    action = bench.take(1)
    bench.do(action)
    bench.lose_ledger()
    place = FabricPlace(action.partition, action.modules, action.gpus)
    for gpu in action.gpus:
        bare = Device(kind="passthrough", gpu=gpu, parent=gpu, type_name=MODEL, name=gpu)
        bench.kinds["passthrough"].adopt("a", replace(bare, fabric=place if gpu == action.gpus[-1] else None))
    assert not bench.do(action).changed, "as an operation that goes on does"
    shown = bench.seen().partition(1)
    assert shown is not None
    assert shown.owner == "a"
    bench.give_back(action)
    assert bench.fabric.active() == set()
    assert {bench.host.driver_of(gpu) for gpu in action.gpus} == {"nvidia"}


@pytest.mark.parametrize("module", [0, 1])
def test_cards_that_all_tell_one_module_id_are_on_no_baseboard(bench: Bench, module: int) -> None:
    gpus = observe_gpus(bench.host.paths, bench.ledger, bench.kinds, bench.driver.read())
    cards = tuple(replace(gpu, module_id=module) for gpu in gpus)
    for there in (cards, cards[:1]):
        assert observe_fabric(bench.host.paths, bench.ledger, Fmpm(bench.host.paths), there) is None


def test_a_gpu_that_waits_for_its_partition_or_needs_none_has_not_failed_to_join(bench: Bench) -> None:
    signal = GpuSignal(name="fabric-not_joined", text="not started")
    gpus = observe_gpus(bench.host.paths, bench.ledger, bench.kinds, bench.driver.read())
    waiting = tuple(replace(gpu, signals=(signal,)) for gpu in gpus)

    def told(fabric: FabricSnapshot | None) -> int:
        return sum(bool(gpu.signals) for gpu in without_waiting(waiting, fabric))

    shared = bench.seen()
    assert (told(None), told(shared)) == (len(gpus), 0)
    first = replace(shared.partitions[0], active=True)
    assert told(replace(shared, partitions=(first,))) == len(first.modules)
    in_mig_mode = tuple(replace(gpu, mig_enabled=True) for gpu in waiting)
    assert not any(gpu.signals for gpu in without_waiting(in_mig_mode, None))
