# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mdev import MdevDevices, mdev_devices, mdev_key
from orchestrator.agent.attachments.vendor_vfio import TypedFunctions, vf_key
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.reading import Nvml, NvmlReading
from orchestrator.agent.observing import observe_gpus
from orchestrator.core.actions.host_actions import ActionResult, ClearVgpuType, MakeVgpu, RemoveMdev
from orchestrator.core.errors import Conflict, Denied, Fatal, InvalidInput, Retryable, Unknown, VgpuctlError
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, L40S = "0000:01:00.0", "0000:02:00.0"
VF1, VF2 = "0000:02:00.1", "0000:02:00.2"
UUID = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"
OTHER_UUID = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c12"


class Bench:
    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.host.add_t4(T4)
        self.host.add_l40s(L40S)
        self.timing = FakeTiming()
        self.start()
        self.ledger.manage_gpus((T4, L40S))

    def start(self, boot_id: str = "boot-1") -> None:
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id=boot_id)
        files = DeviceFiles(self.host.paths, self.ledger, self.timing, dict, self.host.write)
        self.kinds = kinds_of(files, FakeMig(), Nvml())
        self.mdevs, self.functions = MdevDevices(files), TypedFunctions(files)

    def tree(self) -> set[str]:
        found = {link.name for link in mdev_devices(self.host.paths).iterdir()}
        for file in self.host.paths.pci_devices.glob("*/nvidia/current_vgpu_type"):
            found.add(f"{file.parents[1].name} {file.read_text().strip()}")
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def create(uuid: str = UUID, *, vm: str = "a", parent: str = T4, name: str = "GRID T4-2Q") -> MakeVgpu:
    return MakeVgpu(vm=vm, uuid=uuid, parent=parent, type_name=name)


def typed(vf: str = VF1, *, vm: str = "a", name: str = "NVIDIA L40S-2Q") -> MakeVgpu:
    return MakeVgpu(vm=vm, parent=vf, type_name=name)


@pytest.mark.fault("F47")
def test_an_mdev_is_made_once_and_removed_once(bench: Bench) -> None:
    before = bench.tree()
    assert bench.mdevs.make(create()).changed
    assert not bench.mdevs.make(create()).changed
    assert UUID in bench.tree()
    removed = bench.mdevs.remove(RemoveMdev(vm="a", uuid=UUID))
    assert removed == ActionResult(changed=True, cleaned="vgpu_destroyed")
    again = bench.mdevs.remove(RemoveMdev(vm="a", uuid=UUID))
    assert again == ActionResult(changed=False, cleaned="absent")
    assert bench.tree() == before


def test_what_is_cleaned_is_only_said_of_a_function_that_the_ledger_knows_or_that_is_empty(bench: Bench) -> None:
    clear = ClearVgpuType(vm="a", vf=VF1)
    bench.functions.make(typed())
    bench.ledger.release(vf_key(VF1))
    assert bench.functions.remove(clear) == ActionResult(changed=False)  # it may be the VM's still
    bench.ledger.claim(vf_key(VF1), "a", detail="1148 NVIDIA L40S-2Q", until_reboot=True)
    assert bench.functions.remove(clear).cleaned == "vgpu_destroyed"
    assert bench.functions.remove(clear).cleaned == "absent"
    bench.functions.make(typed(vm="b"))
    assert bench.functions.remove(clear).cleaned == "absent"


def test_what_the_ledger_has_of_a_vgpu_that_is_gone_is_forgotten_with_its_vm(bench: Bench) -> None:
    """As an agent leaves it that dies between the removal and its note: the function would be nobody else's."""
    bench.mdevs.make(create())
    bench.functions.make(typed(VF1))
    bench.functions.make(typed(VF2, vm="b"))
    for kind in bench.kinds.values():
        kind.forget_gone("a")
    assert bench.functions.owner_of(VF1) == bench.mdevs.owner_of(UUID) == "a"
    bench.host.write(bench.host.paths.pci(VF1) / "nvidia" / "current_vgpu_type", "0")
    bench.host.write(bench.host.paths.pci(T4) / UUID / "remove", "1")
    for kind in bench.kinds.values():
        kind.forget_gone("a")
    assert bench.functions.owner_of(VF1) is bench.mdevs.owner_of(UUID) is None
    assert bench.functions.owner_of(VF2) == "b"
    bench.functions.make(typed(VF1, vm="c"))


def test_an_mdev_that_is_still_being_made_is_not_written_to(bench: Bench) -> None:
    bench.ledger.claim(mdev_key(UUID), "a", detail=f"{T4} GRID T4-2Q", until_reboot=True)
    bench.host.begin_mdev(T4, UUID)
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.make(create()),
        lambda: bench.mdevs.remove(RemoveMdev(vm="a", uuid=UUID)),
    )
    for call in calls:
        with pytest.raises(Unknown) as refused:
            call()
        assert refused.value.code == "vgpu.create_hung"
    assert bench.host.writes == []
    bench.host.end_mdev(T4, "nvidia-231", UUID)
    assert bench.mdevs.remove(RemoveMdev(vm="a", uuid=UUID)).changed
    assert UUID not in bench.tree()


def test_a_type_whose_write_still_hangs_is_neither_written_again_nor_taken_for_gone(bench: Bench) -> None:
    bench.ledger.claim(vf_key(VF1), "a", detail="1148 NVIDIA L40S-2Q", until_reboot=True)
    bench.host.begin_type(VF1, 1148)
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.functions.make(typed()),
        lambda: bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)),
    )
    for call in calls:
        with pytest.raises(Unknown) as refused:
            call()
        assert refused.value.code == "vgpu.create_hung"
    assert bench.host.writes == []
    bench.host.end_type(VF1, 1148)
    assert bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert f"{VF1} 0" in bench.tree()


@pytest.mark.fault("F57")
def test_a_type_is_set_once_and_cleared_once_without_the_driver_ever_answering_eperm(bench: Bench) -> None:
    before = bench.tree()
    assert bench.functions.make(typed()).changed
    assert not bench.functions.make(typed()).changed
    assert bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert not bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert bench.tree() == before
    assert bench.host.writes == [("current_vgpu_type", "1148"), ("current_vgpu_type", "0")]


@pytest.mark.fault("F61")
def test_a_type_is_found_by_its_whole_name_and_id(bench: Bench) -> None:
    with pytest.raises(Fatal, match="takes no NVIDIA L40S-4 now"):
        bench.functions.make(typed(name="NVIDIA L40S-4"))
    bench.functions.make(typed(name="NVIDIA L40S-48Q"))
    assert f"{VF1} 14" in bench.tree()


@pytest.mark.fault("F43")
def test_a_type_without_a_name_file_is_found_by_the_driver_librarys_name(bench: Bench) -> None:
    (bench.host.paths.pci(T4) / "mdev_supported_types/nvidia-231/name").unlink()
    names = {231: "GRID T4-2Q"}
    files = DeviceFiles(bench.host.paths, bench.ledger, bench.timing, lambda: names, bench.host.write)
    assert MdevDevices(files).make(create()).changed


@pytest.mark.fault("F55")
def test_another_size_on_a_gpu_in_use_is_no_room(bench: Bench) -> None:
    bench.mdevs.make(create())
    bench.functions.make(typed())
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.make(create(OTHER_UUID, name="GRID T4-1Q")),
        lambda: bench.functions.make(typed(VF2, name="NVIDIA L40S-1B")),
    )
    for call in calls:
        with pytest.raises(Fatal) as refused:
            call()
        assert refused.value.code == "vgpu.no_room"


@pytest.mark.fault("F51")
@pytest.mark.parametrize("number", [errno.EBUSY, errno.EAGAIN])
def test_a_busy_driver_is_asked_a_few_times_and_then_left(bench: Bench, number: int) -> None:
    bench.host.answers.extend([number, number, 0])
    assert bench.mdevs.make(create()).changed
    assert len(bench.timing.slept) == 2

    bench.host.answers.extend([number] * 20)
    with pytest.raises(Retryable) as refused:
        bench.functions.make(typed())
    assert refused.value.code == "vgpu.busy"
    assert len(bench.host.answers) == 20 - 4


@pytest.mark.fault("F50")
@pytest.mark.parametrize(
    ("number", "family", "code"),
    [
        (errno.EBUSY, Retryable, "vgpu.busy"),
        (errno.EIO, Fatal, "vgpu.driver_refused"),
        (errno.ENOSPC, Fatal, "vgpu.no_room"),
        (errno.EUSERS, Fatal, "vgpu.no_room"),
        (errno.EINVAL, Fatal, "vgpu.type_refused"),
        (errno.EPERM, Fatal, "vgpu.state_changed"),
        (errno.ENODEV, Fatal, "vgpu.gpu_gone"),
        (errno.ENOMEM, Retryable, "vgpu.no_memory"),
        (errno.EPIPE, Fatal, "vgpu.driver_refused"),
        (-9, Fatal, "vgpu.driver_refused"),
    ],
)
def test_a_refused_create_has_a_stable_code_and_leaves_nothing(
    bench: Bench, number: int, family: type[VgpuctlError], code: str
) -> None:
    before = bench.tree()
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.make(create()),
        lambda: bench.functions.make(typed()),
    )
    for call in calls:
        bench.host.answers.extend([number] * 4)
        with pytest.raises(family) as refused:
            call()
        assert refused.value.code == code
        bench.host.answers.clear()
    assert bench.tree() == before
    assert bench.ledger.owner(f"mdev:{UUID}") is None
    assert bench.ledger.owner(f"vf:{VF1}") is None


@pytest.mark.fault("F48", "F56")
def test_what_somebody_else_made_is_neither_taken_nor_removed(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", UUID)
    bench.host.set_type(VF1, 1148)
    before = bench.tree()
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.make(create()),
        lambda: bench.mdevs.remove(RemoveMdev(vm="a", uuid=UUID)),
        lambda: bench.functions.make(typed()),
    )
    for call in calls:
        with pytest.raises(Conflict) as refused:
            call()
        assert refused.value.code == "vgpu.foreign"
    assert not bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert bench.tree() == before
    assert bench.host.writes == []


def test_another_type_that_somebody_put_where_ours_was_is_left_alone(bench: Bench) -> None:
    bench.functions.make(typed())
    bench.host.set_type(VF1, 0)
    bench.host.set_type(VF1, 1145)
    assert not bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert f"{VF1} 1145" in bench.tree()
    assert bench.ledger.owner(vf_key(VF1)) is None


@pytest.mark.fault("F58")
def test_a_late_release_does_not_touch_the_next_owners_vgpu(bench: Bench) -> None:
    bench.functions.make(typed(vm="a"))
    bench.functions.remove(ClearVgpuType(vm="a", vf=VF1))
    bench.functions.make(typed(vm="b"))
    assert not bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert f"{VF1} 1148" in bench.tree()


def test_a_vgpu_that_a_process_holds_open_is_not_removed(bench: Bench) -> None:
    bench.mdevs.make(create())
    bench.functions.make(typed())
    bench.host.hold_open(bench.host.node_of(bench.host.paths.pci(T4) / UUID))
    bench.host.hold_open(bench.host.node_of(bench.host.paths.pci(VF1)))
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.remove(RemoveMdev(vm="a", uuid=UUID)),
        lambda: bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)),
    )
    for call in calls:
        with pytest.raises(Conflict) as refused:
            call()
        assert refused.value.code == "vgpu.in_use"


def test_not_being_able_to_tell_counts_as_in_use(bench: Bench) -> None:
    bench.functions.make(typed())
    descriptors = bench.host.paths.proc / "77" / "fd"
    descriptors.parent.mkdir()
    descriptors.write_text("not a directory")
    with pytest.raises(Conflict) as refused:
        bench.functions.remove(ClearVgpuType(vm="a", vf=VF1))
    assert refused.value.code == "vgpu.in_use"


def test_a_gpu_that_was_not_given_to_us_is_not_touched(bench: Bench) -> None:
    bench.ledger.manage_gpus(())
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.make(create()),
        lambda: bench.functions.make(typed()),
    )
    for call in calls:
        with pytest.raises(Denied) as refused:
            call()
        assert refused.value.code == "gpu.not_managed"
    assert bench.host.writes == []


@pytest.mark.parametrize(
    "uuid", ["", "../../0000:01:00.0", UUID.upper(), "{" + UUID + "}", UUID + "\n", "urn:uuid:" + UUID]
)
def test_a_uuid_in_another_form_is_refused(bench: Bench, uuid: str) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: bench.mdevs.make(create(uuid)),
        lambda: bench.mdevs.remove(RemoveMdev(vm="a", uuid=uuid)),
    )
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


def test_after_a_reboot_a_type_on_the_same_function_is_not_ours(bench: Bench) -> None:
    bench.functions.make(typed())
    bench.start(boot_id="boot-2")
    assert not bench.functions.remove(ClearVgpuType(vm="a", vf=VF1)).changed
    assert f"{VF1} 1148" in bench.tree()


def test_the_snapshot_shows_types_owners_and_users(bench: Bench) -> None:
    bench.mdevs.make(create())
    bench.functions.make(typed())
    bench.host.make_mdev(T4, "nvidia-231", OTHER_UUID)
    bench.host.hold_open(bench.host.node_of(bench.host.paths.pci(VF1)))
    bench.host.add_function("0000:03:00.0", device="2330")
    bench.host.add_function("0000:04:00.0", device="1af1", pci_class="0x068000")

    t4, l40s, bare = observe_gpus(bench.host.paths, bench.ledger, bench.kinds, NvmlReading())
    assert (t4.framework, l40s.framework, bare.framework) == ("mdev", "vendor_vfio", "none")
    assert [(m.uuid, m.owner) for m in t4.parents[0].mdevs] == [(UUID, "a"), (OTHER_UUID, None)]
    assert t4.parents[0].creatable == ("GRID T4-2Q",)
    assert [(t.name, t.framebuffer_mib, t.max_instances) for t in t4.types][-1] == ("GRID T4-2Q", 2048, 8)
    assert [(p.current_type, p.owner, p.in_use) for p in l40s.parents] == [
        ("NVIDIA L40S-2Q", "a", True),
        (None, None, False),
    ]
    assert l40s.parents[1].creatable == ("NVIDIA L40S-2Q",)
    assert bare.parents == ()
    assert bare.problems


@pytest.mark.fault("F59")
def test_a_function_that_cannot_be_read_does_not_look_free(bench: Bench) -> None:
    (bench.host.paths.pci(VF1) / "nvidia/current_vgpu_type").unlink()
    _, l40s = observe_gpus(bench.host.paths, bench.ledger, bench.kinds, NvmlReading())
    assert [p.current_type for p in l40s.parents] == ["unknown", None]
    assert any(VF1 in problem for problem in l40s.problems)


@pytest.mark.fault("F59")
def test_a_gpu_whose_files_hold_rubbish_costs_itself_alone(bench: Bench) -> None:
    described = bench.host.paths.pci(T4) / "mdev_supported_types/nvidia-231/description"
    described.write_text(f"framebuffer={'9' * 5000}M, max_instance=8")
    t4, l40s = observe_gpus(bench.host.paths, bench.ledger, bench.kinds, NvmlReading())
    assert any("cannot be read" in problem for problem in t4.problems)
    assert len(l40s.parents) == 2
