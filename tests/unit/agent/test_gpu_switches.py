# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.attachments import kinds_of
from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.mig_backed import instance_key
from orchestrator.agent.gpu_settings import SettingDrivers
from orchestrator.agent.gpu_switches import Chosen, GpuSwitches
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.core.errors import Conflict, Denied, Fatal, InvalidInput, Retryable
from tests.fakes.fake_gpu_settings import FakeSetting
from tests.fakes.fake_mig import FakeMig
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4, L40S = "0000:01:00.0", "0000:02:00.0"


class Bench:
    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.host.add_t4(T4)
        self.host.add_l40s(L40S, enabled=0)
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.timing = FakeTiming()
        self.mig = FakeMig()
        files = DeviceFiles(self.host.paths, self.ledger, self.timing, dict, self.host.write)
        kinds = kinds_of(files, FakeMig(), Nvml())
        self.switches = GpuSwitches(
            self.host.paths,
            self.ledger,
            self.timing,
            Nvml(),
            kinds,
            Chosen(self.mig, SettingDrivers(schedulers=FakeSetting(), mixed_sizes=FakeSetting()), FakeSetting()),
        )
        self.calls = root / "calls"

    def sriov_manage(self, script: str) -> None:
        """A stand-in that keeps a list of how it was called."""
        path = self.host.paths.sriov_manage
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$@" >> {self.calls}\ncalls=$(wc -l < {self.calls})\n{script}\n')
        path.chmod(0o755)

    def numvfs(self) -> Path:
        return self.host.paths.pci(L40S) / "sriov_numvfs"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.ledger.manage_gpus((T4, L40S))
    return made


@pytest.mark.fault("F65")
def test_virtual_functions_are_switched_on_once_and_off_once(bench: Bench) -> None:
    bench.sriov_manage(f'case "$1" in -e) echo 32;; -d) echo 0;; esac > {bench.numvfs()}')
    assert bench.switches.enable_virtual_functions(L40S).changed
    assert not bench.switches.enable_virtual_functions(L40S).changed
    assert bench.switches.disable_virtual_functions(L40S).changed
    assert not bench.switches.disable_virtual_functions(L40S).changed
    assert bench.calls.read_text() == f"-e {L40S}\n-d {L40S}\n"


def test_gpu_instances_of_others_outlive_that_functions_are_switched_on(bench: Bench) -> None:
    """The driver's script would destroy them."""
    bench.sriov_manage(f"echo 32 > {bench.numvfs()}")
    bench.mig.mode[L40S] = True
    bench.mig.put(L40S, FoundInstance(id=1, profile="1g.10gb", start=6, size=1, compute=(0,)))
    with pytest.raises(Conflict) as raised:
        bench.switches.enable_virtual_functions(L40S)
    assert raised.value.details == "1g.10gb at slot 6"
    assert not bench.calls.exists()
    bench.ledger.claim(instance_key(L40S, 6), "a", until_reboot=True)
    assert bench.switches.enable_virtual_functions(L40S).changed


@pytest.mark.fault("F66")
def test_only_a_missing_unbind_lock_is_tried_again(bench: Bench) -> None:
    bench.sriov_manage(
        f'[ $calls -lt 3 ] && echo "Cannot obtain unbindLock for $2" && exit 1; echo 32 > {bench.numvfs()}'
    )
    assert bench.switches.enable_virtual_functions(L40S).changed
    assert bench.timing.slept == [1.0, 1.0]


@pytest.mark.fault("F66")
@pytest.mark.parametrize(
    ("output", "family", "code", "tries"),
    [("Cannot obtain unbindLock", Retryable, "gpu.nvml_busy", 5), ("No such device", Fatal, "gpu.sriov_failed", 1)],
)
def test_a_refusal_names_its_reason(
    bench: Bench, output: str, family: type[Retryable | Fatal], code: str, tries: int
) -> None:
    bench.sriov_manage(f"echo '{output}'; exit 1")
    with pytest.raises(family) as refused:
        bench.switches.enable_virtual_functions(L40S)
    assert refused.value.code == code
    assert output in str(refused.value.details)
    assert len(bench.calls.read_text().splitlines()) == tries


def test_a_host_without_sriov_manage_and_a_gpu_without_functions_are_told_apart(bench: Bench) -> None:
    for gpu, code in ((L40S, "gpu.sriov_failed"), (T4, "gpu.no_sriov")):
        with pytest.raises(Fatal) as refused:
            bench.switches.enable_virtual_functions(gpu)
        assert refused.value.code == code


@pytest.mark.fault("F65")
def test_functions_in_use_are_not_switched_off(bench: Bench) -> None:
    bench.host.enable_functions(L40S, 2)
    bench.host.set_type("0000:02:00.1", 1148)
    with pytest.raises(Conflict) as refused:
        bench.switches.disable_virtual_functions(L40S)
    assert refused.value.code == "gpu.in_use"
    assert not bench.calls.exists()


def test_only_gpus_of_this_host_can_be_ours_and_only_ours_are_switched(bench: Bench) -> None:
    with pytest.raises(InvalidInput):
        bench.switches.manage((T4, "0000:09:00.0"))
    assert bench.switches.manage((T4,)).changed
    assert not bench.switches.manage((T4,)).changed
    with pytest.raises(Denied):
        bench.switches.enable_virtual_functions(L40S)


def test_a_gpu_with_a_vgpu_is_not_given_back(bench: Bench) -> None:
    bench.host.make_mdev(T4, "nvidia-231", "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11")
    with pytest.raises(Conflict):
        bench.switches.manage((L40S,))
    assert bench.ledger.managed_gpus() == {T4, L40S}
