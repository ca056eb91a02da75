# SPDX-License-Identifier: Apache-2.0
"""A GPU that is taken from its driver for a VM and given back, on a tree that looks like a host."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.gpu_settings import SettingDrivers
from orchestrator.agent.gpu_switches import Chosen, GpuSwitches
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.reading import NvmlGpu, NvmlReading
from orchestrator.agent.observing import observe_gpus
from orchestrator.core.actions.host_actions import ActionResult, BindVfio, MakeVgpu, RestoreDriver
from orchestrator.core.attachments import observed_on
from orchestrator.core.errors import Conflict, Denied, Fatal
from orchestrator.core.hosts.snapshot import GpuSnapshot
from tests.fakes.fake_gpu_settings import FakeSetting
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.acting import Acting
from tests.unit.agent.fake_driver import PERSISTENCE, FakeUses
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, AUDIO, L40S = "0000:01:00.0", "0000:01:00.1", "0000:02:00.0"
UUID = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
SAID = NvmlGpu(
    uuid="GPU-1", serial="7", name="Tesla T4", memory_mib=16384, mig_enabled=None, mig_pending=None,
    instances=(), heterogeneous=None, module_id=3, types=(), problems=(),
)  # fmt: skip


class FakeDriver(FakeUses):
    """Knows the GPUs that the nvidia driver has."""

    def __init__(self, host: FakeSysfs) -> None:
        super().__init__(host)
        self.said = SAID

    def read(self) -> NvmlReading:
        bound = [gpu for gpu in (T4, L40S) if self.host.driver_of(gpu) == "nvidia"]
        return NvmlReading(driver_version="580.95.02", gpus=dict.fromkeys(bound, self.said))


class Bench(Acting[BindVfio | RestoreDriver | MakeVgpu]):
    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.host.add_t4(T4)
        self.host.add_function(AUDIO, device="10f0", pci_class="0x040300")
        self.host.join_groups(T4, AUDIO)
        self.host.add_l40s(L40S)
        self.host.add_drivers("nvidia", "vfio-pci", "snd_hda_intel", "nouveau")
        for address, driver in ((T4, "nvidia"), (AUDIO, "snd_hda_intel"), (L40S, "nvidia")):
            self.host.bind(address, driver)
        self.driver = FakeDriver(self.host)
        self.start()
        self.ledger.manage_gpus((T4, L40S))
        self.sriov_manage()

    def start(self, boot_id: str = "boot-1") -> None:
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id=boot_id)
        self.timing = FakeTiming()
        files = DeviceFiles(self.host.paths, self.ledger, self.timing, dict, self.host.write)
        self.kinds = kinds_of(files, FakeMig(), self.driver)
        self.handlers = {action: do for kind in self.kinds.values() for action, do in kind.handlers.items()}

    def switches(self) -> GpuSwitches:
        chosen = Chosen(FakeMig(), SettingDrivers(schedulers=FakeSetting(), mixed_sizes=FakeSetting()), FakeSetting())
        return GpuSwitches(self.host.paths, self.ledger, self.timing, self.driver, self.kinds, chosen)

    def sriov_manage(self) -> None:
        path = self.host.paths.sriov_manage
        path.parent.mkdir(parents=True, exist_ok=True)
        numvfs = self.host.paths.pci_devices
        path.write_text(
            f'#!/bin/sh\ncase "$1" in -e) echo 2;; -d) echo 0;; esac > {numvfs}/$2/sriov_numvfs\n', encoding="utf-8"
        )
        path.chmod(0o755)

    def do(self, action: BindVfio | RestoreDriver | MakeVgpu) -> ActionResult:
        return self.handlers[type(action)](action)

    def drivers(self) -> dict[str, tuple[str | None, str, str]]:
        numvfs = (self.host.paths.pci(L40S) / "sriov_numvfs").read_text()
        return {
            one: (self.host.driver_of(one), (self.host.paths.pci(one) / "driver_override").read_text(), numvfs)
            for one in (T4, AUDIO, L40S)
        }

    def seen(self, gpu: str) -> GpuSnapshot:
        reading = self.driver.read()
        return next(
            one for one in observe_gpus(self.host.paths, self.ledger, self.kinds, reading) if one.address == gpu
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def take(gpu: str = T4, vm: str = "a") -> BindVfio:
    return BindVfio(vm=vm, gpu=gpu, model="GRID T4")


def give_back(gpu: str = T4, vm: str = "a") -> RestoreDriver:
    return RestoreDriver(vm=vm, gpu=gpu)


@pytest.mark.parametrize("gpu", [T4, L40S])
def test_a_gpu_is_taken_once_and_its_driver_has_it_again_exactly_as_before(bench: Bench, gpu: str) -> None:
    before = bench.drivers()
    assert bench.do(take(gpu)).changed
    assert not bench.do(take(gpu)).changed
    assert bench.host.driver_of(gpu) == "vfio-pci"
    assert bench.do(give_back(gpu)) == ActionResult(changed=True, cleaned="flr")
    assert bench.do(give_back(gpu)) == ActionResult(changed=False, cleaned="absent")
    assert bench.drivers() == before
    assert ("reset", "1") in bench.host.writes


@pytest.mark.fault("F26")
def test_a_gpu_is_reset_by_what_clears_it_and_never_by_its_power_state(bench: Bench) -> None:
    file = bench.host.paths.pci(T4) / "reset_method"
    file.write_text("pm bus", encoding="utf-8")
    bench.do(take())
    assert bench.do(give_back()).cleaned == "bus_reset"
    assert file.read_text().strip() == "bus"
    bench.do(take())
    file.write_text("pm", encoding="utf-8")
    assert bench.do(give_back()).cleaned == ""
    bench.refused(take(), Fatal, "gpu.no_reset")


def test_the_audio_function_goes_and_comes_with_its_gpu(bench: Bench) -> None:
    bench.do(take())
    assert bench.host.driver_of(AUDIO) == "vfio-pci"
    bench.do(give_back())
    assert bench.host.driver_of(AUDIO) == "snd_hda_intel"


@pytest.mark.fault("F31")
@pytest.mark.parametrize("driver", ["nouveau", None])
def test_whatever_driver_a_gpu_had_is_the_one_that_it_gets_back(bench: Bench, driver: str | None) -> None:
    bench.host.bind(T4, driver)
    before = bench.drivers()
    bench.do(take())
    bench.do(give_back())
    assert bench.drivers() == before


@pytest.mark.fault("F67")
def test_virtual_functions_are_off_before_vfio_gets_the_gpu_and_on_again_afterwards(bench: Bench) -> None:
    numvfs = bench.host.paths.pci(L40S) / "sriov_numvfs"
    bench.do(take(L40S))
    assert numvfs.read_text().strip() == "0"
    bench.do(give_back(L40S))
    assert numvfs.read_text().strip() == "2"


def test_what_the_driver_said_of_a_gpu_is_told_while_a_vm_has_it(bench: Bench) -> None:
    bench.do(take())
    seen = bench.seen(T4)
    assert (seen.uuid, seen.module_id, seen.memory_mib, seen.problems) == ("GPU-1", 3, 16384, ())
    assert (seen.framework, seen.driver) == ("passthrough", "vfio-pci")
    (device,) = observed_on(seen)
    assert (device.owner, device.device.type_name, device.in_use) == ("a", "GRID T4", False)


@pytest.mark.fault("F31")
def test_a_gpu_that_somebody_else_gave_to_vfio_is_shown_and_left_alone(bench: Bench) -> None:
    bench.host.bind(T4, "vfio-pci")
    (device,) = observed_on(bench.seen(T4))
    assert device.owner is None
    assert bench.seen(T4).problems == ("vfio-pci has it, and we did not give it there",)
    assert bench.seen(T4).memory_mib is None
    bench.refused(take(), Conflict, "gpu.foreign")
    assert not bench.do(give_back()).changed
    assert bench.host.driver_of(T4) == "vfio-pci"


@pytest.mark.fault("F26")
def test_a_group_with_other_members_is_refused_naming_them_and_bridges_and_what_has_no_driver_do_not_count(
    bench: Bench,
) -> None:
    bench.host.add_function("0000:00:05.0", device="000c", pci_class="0x060400", vendor="0x1b36")
    bench.host.add_function("0000:00:06.0", device="14b5", pci_class="0x130000", vendor="0x1022")  # of no driver
    bench.host.add_drivers("pci-stub", "pcieport")
    bench.host.add_function("0000:00:06.1", device="1563", pci_class="0x020000", vendor="0x8086")
    bench.host.bind("0000:00:06.1", "pci-stub")
    bench.host.add_function("0000:00:00.3", device="14a6", pci_class="0x080700", vendor="0x1022")  # events of a root
    bench.host.bind("0000:00:00.3", "pcieport")
    bench.host.join_groups(T4, "0000:00:05.0", "0000:00:06.0", "0000:00:06.1", "0000:00:00.3")
    bench.do(take())
    bench.do(give_back())
    bench.host.join_groups(T4, L40S)
    before = bench.drivers()
    assert L40S in bench.refused(take(), Conflict, "gpu.group_shared")
    assert bench.seen(T4).iommu_shared_with == (L40S,)
    assert bench.drivers() == before


@pytest.mark.fault("F26")
def test_without_an_iommu_group_or_a_way_to_reset_a_gpu_stays_with_its_host(bench: Bench) -> None:
    (bench.host.paths.pci(L40S) / "reset_method").write_text("\n", encoding="utf-8")
    bench.refused(take(L40S), Fatal, "gpu.no_reset")
    (bench.host.paths.pci(T4) / "iommu_group").unlink()
    bench.refused(take(), Fatal, "gpu.no_iommu")
    assert bench.seen(T4).iommu_shared_with is None


@pytest.mark.fault("F67")
def test_a_gpu_with_a_vgpu_on_it_is_refused_naming_what_is_there(bench: Bench) -> None:
    bench.do(MakeVgpu(vm="b", uuid=UUID, parent=T4, type_name="GRID T4-2Q"))
    assert UUID in bench.refused(take(), Conflict, "gpu.in_use")
    vf = f"{L40S[:-2]}.1"
    bench.do(MakeVgpu(vm="b", parent=vf, type_name="NVIDIA L40S-2Q"))
    assert vf in bench.refused(take(L40S), Conflict, "gpu.in_use")
    bench.driver.said = replace(SAID, mig_enabled=True)
    assert "MIG" in bench.refused(take(), Conflict, "gpu.in_use")
    assert bench.host.driver_of(T4) == bench.host.driver_of(L40S) == "nvidia"


def test_a_process_that_has_the_gpu_open_is_named(bench: Bench) -> None:
    bench.host.text(bench.host.paths.proc / f"driver/nvidia/gpus/{T4}/information", "Model: T4\nDevice Minor: \t 3")
    bench.host.text(bench.host.paths.proc / "4242/comm", "python3")
    bench.host.hold_open("/dev/nvidia3")
    assert "python3 (4242)" in bench.refused(take(), Conflict, "gpu.in_use")
    assert bench.host.driver_of(T4) == "nvidia"


def test_persistence_mode_is_off_while_a_vm_has_the_gpu_and_on_again_afterwards(bench: Bench) -> None:
    for gpu in (T4, L40S):
        bench.host.uses[gpu] = {PERSISTENCE}
        bench.do(take(gpu))
        assert bench.host.driver_of(gpu) == "vfio-pci"
        assert bench.do(give_back(gpu)).message == ""
        assert bench.host.uses[gpu] == {PERSISTENCE}


def test_persistence_mode_comes_back_after_an_agent_that_was_killed_while_it_took_the_gpu(bench: Bench) -> None:
    bench.host.uses[T4] = {PERSISTENCE}
    bench.host.answers.extend([0, errno.EINVAL])
    with pytest.raises(Fatal):
        bench.do(take())
    assert not bench.host.unbind_locked(T4)
    bench.host.answers.clear()
    bench.ledger.close()
    bench.start()
    bench.do(take())
    bench.do(give_back())
    assert bench.host.uses[T4] == {PERSISTENCE}


def test_the_persistence_daemon_closes_the_gpu_when_its_mode_is_off(bench: Bench) -> None:
    bench.host.uses[T4] = {PERSISTENCE}
    bench.host.text(bench.host.paths.proc / f"driver/nvidia/gpus/{T4}/information", "Model: T4\nDevice Minor: \t 3")
    bench.host.text(bench.host.paths.proc / "4242/comm", "nvidia-persiste")
    bench.host.hold_open("/dev/nvidia3")
    bench.timing.while_waiting = lambda: shutil.rmtree(bench.host.paths.proc / "4242", ignore_errors=True)
    bench.do(take())
    assert bench.host.driver_of(T4) == "vfio-pci"


@pytest.mark.parametrize(
    "use, named", [("a leak", "no open file shows"), ("nvidia-drm", "nvidia-drm"), ("a process", "train (77)")]
)
def test_who_holds_a_gpu_that_no_open_file_shows_is_named_and_nothing_is_changed(
    bench: Bench, use: str, named: str
) -> None:
    before = bench.drivers()
    bench.host.uses[T4] = {PERSISTENCE, use}
    if use == "nvidia-drm":
        bench.host.text(bench.host.paths.root / "sys/module/nvidia_drm/parameters/modeset", "Y")
        (bench.host.paths.pci(T4) / "drm/card1").mkdir(parents=True)
    if use == "a process":
        bench.host.text(bench.host.paths.proc / "77/comm", "train")
        bench.driver.running[T4] = (77,)
    assert named in bench.refused(take(), Conflict, "gpu.in_use")
    assert (bench.drivers(), bench.host.unbind_locked(T4)) == (before, False)
    assert bench.host.uses[T4] == {PERSISTENCE, use}
    bench.host.uses[T4] = {PERSISTENCE}
    bench.driver.running.clear()
    bench.do(take(vm="b"))


def test_persistence_mode_that_cannot_be_switched_on_again_keeps_no_gpu_from_its_host(bench: Bench) -> None:
    bench.host.uses[T4] = {PERSISTENCE}
    bench.do(take())
    bench.driver.keeps_persistence = True
    assert "persistence" in bench.do(give_back()).message
    assert bench.host.driver_of(T4) == "nvidia"


def test_virtual_functions_are_switched_while_persistence_mode_is_off(bench: Bench) -> None:
    switches = bench.switches()
    bench.host.uses[L40S] = {PERSISTENCE}
    switches.disable_virtual_functions(L40S)
    assert bench.host.uses[L40S] == {PERSISTENCE}


def test_a_gpu_that_a_vm_has_open_is_not_taken_away(bench: Bench) -> None:
    bench.do(take())
    bench.host.hold_open(bench.host.node_of(bench.host.paths.pci(T4)))
    bench.refused(give_back(), Conflict, "vgpu.in_use")
    assert bench.host.driver_of(T4) == "vfio-pci"


@pytest.mark.fault("F88")
@pytest.mark.parametrize("answer", [errno.ENOTTY, 0])
def test_a_gpu_whose_reset_fails_is_given_to_nobody(bench: Bench, answer: int) -> None:
    bench.do(take())
    if answer:
        bench.host.answers.append(answer)
    else:
        (bench.host.paths.pci(T4) / "config").write_bytes(b"\xff" * 64)
    bench.refused(give_back(), Fatal, "gpu.reset_failed")
    assert bench.host.driver_of(T4) == "vfio-pci"
    bench.refused(take(vm="b"), Conflict, "vgpu.foreign")
    (bench.host.paths.pci(T4) / "config").write_bytes(b"\xde\x10")
    assert bench.do(give_back()).changed
    assert bench.host.driver_of(T4) == "nvidia"


@pytest.mark.parametrize("failing", range(5))
def test_wherever_taking_stops_in_the_middle_giving_back_makes_all_as_before(bench: Bench, failing: int) -> None:
    before = bench.drivers()
    bench.host.answers.extend([0] * failing + [errno.EINVAL])
    with pytest.raises(Fatal):
        bench.do(take())
    bench.host.answers.clear()
    bench.do(give_back())
    assert bench.drivers() == before
    bench.do(take(vm="b"))
    assert bench.host.driver_of(T4) == "vfio-pci"


@pytest.mark.parametrize("failing", range(1, 6))
def test_giving_back_goes_on_where_it_stopped(bench: Bench, failing: int) -> None:
    before = bench.drivers()
    bench.do(take())
    bench.host.answers.extend([0] * failing + [errno.EINVAL])
    with pytest.raises(Fatal):
        bench.do(give_back())
    bench.host.answers.clear()
    bench.do(give_back())
    assert bench.drivers() == before


def test_only_the_vm_that_has_a_gpu_gives_it_back(bench: Bench) -> None:
    bench.do(take())
    assert not bench.do(give_back(vm="b")).changed
    bench.refused(take(vm="b"), Conflict, "vgpu.foreign")
    assert bench.host.driver_of(T4) == "vfio-pci"


def test_after_a_reboot_a_gpu_is_nobodys_until_it_is_taken_again(bench: Bench) -> None:
    bench.do(take())
    bench.ledger.close()
    bench.host.bind(T4, "nvidia")
    bench.start("boot-2")
    assert not bench.do(give_back()).changed
    assert bench.do(take()).changed


def test_gpus_that_were_not_given_to_us_are_not_taken(bench: Bench) -> None:
    bench.ledger.manage_gpus((L40S,))
    bench.refused(take(), Denied, "gpu.not_managed")


def test_virtual_functions_of_a_gpu_that_a_vm_has_stay_off(bench: Bench) -> None:
    switches = bench.switches()
    bench.do(take(L40S))
    assert not switches.enable_virtual_functions(L40S).changed
    with pytest.raises(Conflict, match="in use"):
        switches.manage((T4,))
