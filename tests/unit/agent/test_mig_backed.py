# SPDX-License-Identifier: Apache-2.0
"""GPU instances and vGPUs in them, as the agent makes them on a driver that chooses for itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mig_backed import instance_key
from orchestrator.agent.gpu_switches import Functions, MigModes
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.mig import error_for
from orchestrator.agent.nvml.reading import Nvml, NvmlGpu, NvmlReading
from orchestrator.agent.observing import observe_gpus
from orchestrator.core.actions.host_actions import (
    ActionResult,
    CreateGpuInstance,
    DestroyGpuInstance,
    EnableVirtualFunctions,
    HostAction,
    SetMigMode,
)
from orchestrator.core.attachments import make, observed_on, remove
from orchestrator.core.errors import Conflict, Fatal, Retryable
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.snapshot import HostVgpuType
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_a100 import A100, VFS, A100Host
from tests.unit.agent.fake_timing import FakeTiming

NOTHING_SAID = NvmlGpu(
    uuid=None, serial=None, name=None, memory_mib=None, mig_enabled=None, mig_pending=None, instances=(),
    heterogeneous=None, module_id=None, types=(), problems=(),
)  # fmt: skip
TYPE, PROFILE = "GRID A100D-1-20C", "1g.20gb"
FRAMEWORKS = ("typed", "mediated")
"""By which a virtual function comes to be a vGPU."""


class Bench:
    def __init__(self, root: Path, *, most: int = 1, functions: int = 4, mediated: bool = False) -> None:
        """``most``: vGPUs of one type that a GPU instance takes. ``mediated``: as its kernel makes them."""
        self.mig = FakeMig(mode={A100: True}, shared=frozenset({PROFILE} if most > 1 else ()))
        self.host = A100Host(root, self.mig, most=most, enabled=functions, mediated=mediated)
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.ledger.manage_gpus((A100,))
        files = DeviceFiles(self.host.paths, self.ledger, FakeTiming(), lambda: {1054: TYPE}, self.host.write)
        self.kinds = kinds_of(files, self.mig, Nvml())
        self.handlers = {name: done for kind in self.kinds.values() for name, done in kind.handlers.items()}

    def do(self, action: HostAction) -> ActionResult:
        if isinstance(action, (SetMigMode, EnableVirtualFunctions)):  # parts of the agent that are tested below
            return ActionResult(changed=False)
        return self.handlers[type(action)](action)

    def device(self, vf: int = 0, start: int = 0) -> Device:
        return self.host.device(vf, start)

    def there(self) -> tuple[object, object]:
        return self.mig.instances(A100), dict(self.host.inside)


@pytest.fixture(params=FRAMEWORKS)
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path, mediated=request.param == "mediated")


def start_of(bench: Bench, vf: int) -> int:
    number = bench.host.inside[VFS[vf]]
    return next(one.start for one in bench.mig.instances(A100) if one.id == number)


def test_a_vgpu_is_made_in_its_own_instance_and_both_are_taken_back(bench: Bench) -> None:
    before = bench.there()
    for _ in range(2):
        results = [bench.do(action) for action in make("a", bench.device(start=2))]
    assert [one.changed for one in results] == [False] * 4
    assert start_of(bench, 0) == 2
    for _ in range(2):
        for action in remove("a", bench.device(start=2)):
            bench.do(action)
    assert bench.there() == before
    assert bench.ledger.owner(instance_key(A100, 2)) is None


@pytest.mark.fault("F74")
def test_a_vgpu_never_lies_in_the_instance_of_another_vm(bench: Bench) -> None:
    """The driver takes the first free instance: that of b, whose vGPU is not made yet."""
    bench.do(CreateGpuInstance(vm="b", gpu=A100, profile=PROFILE, start=0))
    for action in make("a", bench.device(0, start=2)):
        bench.do(action)
    assert start_of(bench, 0) == 2
    assert [one.start for one in bench.mig.instances(A100)] == [2, 0]
    for action in make("b", bench.device(1, start=0)):
        bench.do(action)
    assert (start_of(bench, 0), start_of(bench, 1)) == (2, 0)


@pytest.mark.parametrize("answer", [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_what_a_vm_had_on_a_gpu_that_its_driver_has_lost_is_gone(bench: Bench, answer: int) -> None:
    """Else neither a move off it nor the VM's deletion comes to an end."""
    for action in make("a", bench.device(start=2)):
        bench.do(action)
    *first, last = remove("a", bench.device(start=2))
    for action in first:
        bench.do(action)
    bench.mig.lost = error_for(pynvml.NVMLError(answer), A100)
    assert last == DestroyGpuInstance(vm="a", gpu=A100, start=2)
    assert not bench.do(last).changed
    assert bench.ledger.owner(instance_key(A100, 2)) is None


def test_what_the_ledger_has_of_an_instance_that_is_gone_is_forgotten_with_its_vm(bench: Bench) -> None:
    """As an agent leaves it that dies between the two."""
    bench.ledger.claim(instance_key(A100, 2), "a", detail=PROFILE, until_reboot=True)
    for action in make("b", bench.device(1, start=0)):
        bench.do(action)
    for vm in "ab":
        bench.kinds["mig_backed"].forget_gone(vm)
    owners = [bench.ledger.owner(instance_key(A100, start)) for start in (2, 0)]
    assert [owner and owner.vm for owner in owners] == [None, "b"]


def test_where_the_driver_does_not_tell_where_a_vgpu_lies_none_is_left_there(bench: Bench) -> None:
    bench.host.tells, before = False, bench.there()
    *first, last = make("a", bench.device(0, start=2))
    for action in first:
        bench.do(action)
    with pytest.raises(Fatal) as raised:
        bench.do(last)
    assert (raised.value.code, raised.value.details) == ("gpu.instance_untold", VFS[0])
    assert bench.host.inside == {}
    for action in remove("a", bench.device(0, start=2)):
        bench.do(action)
    assert bench.there() == before


def test_an_instance_that_somebody_left_free_is_not_filled_nor_touched(bench: Bench) -> None:
    by_hand = FoundInstance(id=9, profile=PROFILE, start=0, size=2, compute=(0,))
    bench.mig.put(A100, by_hand)
    *first, last = make("a", bench.device(0, start=2))
    for action in first:
        bench.do(action)
    with pytest.raises(Conflict) as raised:
        bench.do(last)
    assert raised.value.code == "gpu.instance_chosen"
    for action in remove("a", bench.device(0, start=2)):
        bench.do(action)
    assert bench.there() == ((by_hand,), {})


def test_an_instance_of_somebody_else_is_neither_taken_nor_destroyed(bench: Bench) -> None:
    bench.mig.put(A100, FoundInstance(id=9, profile=PROFILE, start=0, size=2, compute=(0,)))
    with pytest.raises(Conflict) as raised:
        bench.do(CreateGpuInstance(vm="a", gpu=A100, profile=PROFILE, start=0))
    assert raised.value.code == "gpu.instance_foreign"
    assert not bench.do(DestroyGpuInstance(vm="a", gpu=A100, start=0)).changed
    assert len(bench.mig.instances(A100)) == 1


def test_an_instance_with_a_vgpu_in_it_stays(bench: Bench) -> None:
    for action in make("a", bench.device()):
        bench.do(action)
    with pytest.raises(Conflict) as raised:
        bench.do(DestroyGpuInstance(vm="a", gpu=A100, start=0))
    assert (raised.value.code, raised.value.details) == ("gpu.instance_in_use", bench.device().name)


def test_what_the_driver_refuses_is_nobodys(bench: Bench) -> None:
    bench.mig.answers["create"] = Fatal("gpu.instance_refused", "no room")
    with pytest.raises(Fatal):
        bench.do(CreateGpuInstance(vm="a", gpu=A100, profile=PROFILE, start=0))
    assert bench.ledger.owner(instance_key(A100, 0)) is None


def test_an_instance_that_lost_its_compute_instance_gets_one_again(bench: Bench) -> None:
    action = CreateGpuInstance(vm="a", gpu=A100, profile=PROFILE, start=0)
    bench.do(action)
    (found,) = bench.mig.instances(A100)
    bench.mig.there[A100] = (replace(found, compute=()),)
    assert bench.do(action).changed
    assert bench.mig.instances(A100) == (found,)


def test_no_instance_is_made_while_mig_is_off(bench: Bench) -> None:
    bench.mig.mode[A100] = False
    with pytest.raises(Fatal) as raised:
        bench.do(CreateGpuInstance(vm="a", gpu=A100, profile=PROFILE, start=0))
    assert raised.value.code == "gpu.mig_off"


def test_an_adopted_vgpu_and_its_instance_are_released_as_they_are(bench: Bench) -> None:
    bench.mig.put(A100, FoundInstance(id=9, profile=PROFILE, start=0, size=2, compute=(0,)))
    bench.host.by_hand(0, 1054)
    before = bench.there()
    kind = bench.kinds["mig_backed"]
    with pytest.raises(Conflict):
        kind.adopt("a", bench.device(1))
    kind.adopt("a", bench.device())
    owner = bench.ledger.owner(instance_key(A100, 0))
    assert owner is not None
    assert owner.vm == "a"
    kind.release("a", bench.device())
    assert bench.ledger.owner(instance_key(A100, 0)) is None
    assert bench.there() == before


def test_a_snapshot_tells_which_vgpu_lies_in_which_instance(bench: Bench) -> None:
    for action in make("a", bench.device()):
        bench.do(action)
    bench.mig.put(A100, FoundInstance(id=9, profile="1g.10gb", start=6, size=1, compute=()))
    kind = HostVgpuType(name=TYPE, type_id=1054, framebuffer_mib=20480, max_instances=4)
    said = replace(NOTHING_SAID, types=(kind,), mig_enabled=True, mig_pending=True, instances=bench.mig.instances(A100))
    (gpu,) = observe_gpus(bench.host.paths, bench.ledger, bench.kinds, NvmlReading(gpus={A100: said}))
    assert [(one.start, one.owner, one.compute) for one in gpu.instances] == [(0, "a", (0,)), (6, None, ())]
    names = {(one.device.type_name, one.device.gi_profile, one.device.gi_start, one.owner) for one in observed_on(gpu)}
    assert names == {(TYPE, PROFILE, 0, "a"), ("1g.10gb", "1g.10gb", 6, None)}


class ModeBench:
    """Virtual functions that are counted, on a GPU that has nothing on it unless ``users`` says so."""

    def __init__(self, root: Path, *, mig: bool = False) -> None:
        self.mig = FakeMig(mode={A100: mig})
        self.ledger = Ledger(root, site="s", epoch=1, boot_id="boot-1")
        self.ledger.manage_gpus((A100,))
        self.on = True
        self.users: tuple[str, ...] = ()
        functions = Functions(lambda _: self.on, self._enable, self._disable, self._check)
        self.modes = MigModes(self.ledger, self.mig, functions)

    def _enable(self, _gpu: str) -> None:
        self.on = True

    def _disable(self, _gpu: str) -> None:
        self.on = False

    def _check(self, gpu: str) -> None:
        if self.users:
            raise Conflict("gpu.in_use", f"GPU {gpu} has vGPUs or is in use", details=", ".join(self.users))


@pytest.fixture
def modes(tmp_path: Path) -> ModeBench:
    return ModeBench(tmp_path)


def test_the_mode_is_switched_with_virtual_functions_off_and_put_back_in_the_end(modes: ModeBench) -> None:
    action = SetMigMode(gpu=A100, on=True)
    assert [modes.modes.set_mode(action).changed for _ in range(2)] == [True, False]
    assert (modes.mig.mode[A100], modes.on) == (True, True)
    modes.modes.put_back(A100)
    modes.modes.put_back(A100)
    assert (modes.mig.mode[A100], modes.on) == (False, True)
    assert modes.mig.calls == [f"set_mode {A100}"] * 2


@pytest.mark.fault("F69")
def test_a_mode_that_stays_pending_is_no_success_and_is_taken_back(modes: ModeBench) -> None:
    modes.mig.stays_pending = True
    with pytest.raises(Retryable) as raised:
        modes.modes.set_mode(SetMigMode(gpu=A100, on=True))
    assert raised.value.code == "gpu.mig_pending"
    assert (modes.mig.modes(A100), modes.on) == ((False, False), True)


@pytest.mark.fault("F77")
def test_the_mode_of_a_gpu_with_anything_on_it_is_refused_with_the_names(modes: ModeBench) -> None:
    modes.users = ("vGPU of VM b", "GPU instance 3 (1g.20gb at slot 2)")
    with pytest.raises(Conflict) as raised:
        modes.modes.set_mode(SetMigMode(gpu=A100, on=True))
    assert (raised.value.code, raised.value.details) == (
        "gpu.in_use",
        "vGPU of VM b, GPU instance 3 (1g.20gb at slot 2)",
    )
    assert (modes.mig.calls, modes.on) == ([], True)


@pytest.mark.fault("F70")
def test_a_driver_that_refuses_the_mode_leaves_the_functions_on(modes: ModeBench) -> None:
    modes.mig.answers["set_mode"] = Conflict("gpu.in_use", "in use by another client")
    with pytest.raises(Conflict):
        modes.modes.set_mode(SetMigMode(gpu=A100, on=True))
    assert (modes.mig.mode[A100], modes.on) == (False, True)
