# SPDX-License-Identifier: Apache-2.0
"""GPUs with fewer virtual functions than places for vGPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity
from tests.fakes.control_plane import L40S_HOST, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, l40s

FUNCTIONS, PROFILE = 2, "NVIDIA L40S-12Q"


@pytest.mark.fault("F68")
def test_when_the_functions_of_one_gpu_are_taken_the_vm_goes_to_another_one(tmp_path: Path) -> None:
    gpus = [l40s(), l40s("0000:82:00.0")]
    for gpu in gpus:
        gpu.functions = FUNCTIONS
    plane = control_plane(tmp_path, hosts=FakeHosts({f"{L40S_HOST}.test": FakeMachine(machine_id="m", gpus=gpus)}))
    plane.add_host(L40S_HOST)
    vms = []
    for number in range(FUNCTIONS * len(gpus)):
        plane.services.vms.create(create_vm(f"vm{number}", profile=PROFILE))
        plane.engine.drain()
        vms.append(plane.services.vms.get("default", f"vm{number}"))
    assert sorted(vm.devices[0].gpu for vm in vms) == ["0000:81:00.0"] * FUNCTIONS + ["0000:82:00.0"] * FUNCTIONS
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(create_vm("one-more", profile=PROFILE))
    assert any("every virtual function is taken" in reason.message for reason in refused.value.reasons)
    plane.services.vms.delete("default", "vm0")
    plane.engine.drain()
    plane.services.vms.create(create_vm("one-more", profile=PROFILE))
    plane.store.close()
