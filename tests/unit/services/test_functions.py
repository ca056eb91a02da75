# SPDX-License-Identifier: Apache-2.0
"""GPUs with fewer virtual functions than places for vGPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity
from orchestrator.core.geometry.build import TypeRow, build_geometry
from orchestrator.core.geometry.cut import Taken
from orchestrator.services.vms.capacity import Question
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
    most = plane.services.capacity.capacity(Question(profile=PROFILE))[0]
    assert most.fits_now == FUNCTIONS * len(gpus)
    vms = []
    for number in range(FUNCTIONS * len(gpus)):
        plane.services.vms.create(create_vm(f"vm{number}", profile=PROFILE))
        plane.engine.drain()
        vms.append(plane.services.vms.get("default", f"vm{number}"))
    assert sorted(vm.devices[0].gpu for vm in vms) == ["0000:81:00.0"] * FUNCTIONS + ["0000:82:00.0"] * FUNCTIONS
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(create_vm("one-more", profile=PROFILE))
    assert [reason.code for reason in refused.value.reasons] == ["gpu.no_capacity"]
    assert plane.services.capacity.explain(Question(profile=PROFILE)).explanation.code == "gpu.no_capacity"
    assert plane.services.capacity.capacity(Question(profile=PROFILE))[0].fits_now == 0
    plane.services.vms.delete("default", "vm0")
    plane.engine.drain()
    plane.services.vms.create(create_vm("one-more", profile=PROFILE))
    plane.store.close()


def test_vgpus_of_mixed_sizes_share_the_functions_too() -> None:
    small = TypeRow(name="X-1Q", framebuffer_mib=1024, placement_ids=tuple(range(8)), placement_size=1,
                    placement_region=8, functions=FUNCTIONS)  # fmt: skip
    cut = build_geometry("X", 8192, types=[small], kinds=frozenset({"mixed"})).cut("mixed")
    assert cut is not None
    shape = cut.shapes[0]
    assert cut.choices(cut.classify([Taken(shape, 0, 1)]), shape)
    assert not cut.choices(cut.classify([Taken(shape, at, 1) for at in range(FUNCTIONS)]), shape)
