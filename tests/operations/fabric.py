# SPDX-License-Identifier: Apache-2.0
"""VMs with whole GPUs of an NVSwitch baseboard, for scenes."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.hosts.snapshot import HostVgpuType
from tests.fakes.control_plane import ControlPlane, create_vm
from tests.fakes.fake_machine import FakeGpu, FakeMachine

HOST = "hgx"


def hgx(machine_id: str) -> FakeMachine:
    """Four GPUs of a baseboard, module ids not in the order of their addresses."""
    types = (HostVgpuType(name="NVIDIA H100XM-80C", type_id=1000, framebuffer_mib=81920, max_instances=1),)
    gpus = [
        FakeGpu(address=f"0000:{bus}:00.0", framework="vendor_vfio", types=types, functions=16, module_id=module)
        for bus, module in zip(("19", "3b", "4c", "5d"), (3, 1, 4, 2), strict=True)
    ]
    partitions = {1: (1, 2, 3, 4), 3: (1, 3), 4: (2, 4), 7: (1,), 8: (2,), 9: (3,), 10: (4,)}
    return FakeMachine(machine_id=machine_id, gpus=gpus, partitions=partitions)


def with_board(plane: ControlPlane) -> None:
    plane.hosts.machines[f"{HOST}.test"] = hgx("m4")
    plane.add_host(HOST)


def _prepare(*, start: bool = True) -> Callable[[ControlPlane], None]:
    """The host with a sibling, whose partition nothing may disturb, and the VM."""

    def with_vms(plane: ControlPlane) -> None:
        _with_sibling(plane)
        plane.services.vms.create(create_vm(profile="gpu:2", start=start))
        plane.engine.drain()

    return with_vms


def _with_sibling(plane: ControlPlane) -> None:
    with_board(plane)
    plane.services.vms.create(create_vm("sibling", profile="gpu:1"))
    plane.engine.drain()


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile="gpu:2")).operation


def _now(verb: str) -> Callable[[ControlPlane], str | None]:
    return lambda plane: getattr(plane.services.vms, verb)("default", "train").operation


CASES = (
    ("create partition", "create_vm", _with_sibling, _create),
    ("start partition", "start_vm", _prepare(start=False), _now("start")),
    ("stop partition", "stop_vm", _prepare(), _now("stop")),
    ("restart partition", "restart_vm", _prepare(), _now("restart")),
    ("delete partition", "delete_vm", _prepare(), _now("delete")),
)
"""Name, kind, the world before, what begins it."""
