# SPDX-License-Identifier: Apache-2.0
"""VMs in a GPU instance that another one's vGPU lies in as well, for scenes."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.hosts.snapshot import HostVgpuType
from tests.fakes.control_plane import ControlPlane, create_vm
from tests.fakes.fake_machine import FakeGpu, FakeMachine

HOST = "rtx"
PROFILE = "NVIDIA RTX Pro 6000 Blackwell DC-1-8Q"


def rtx(address: str = "0000:d1:00.0") -> FakeGpu:
    types = (HostVgpuType(name=PROFILE, type_id=1555, framebuffer_mib=8192, max_instances=12),)
    return FakeGpu(address=address, framework="vendor_vfio", types=types, functions=48, mig=False)


def with_sibling(plane: ControlPlane) -> None:
    """The host with one whose vGPU nothing may disturb, in an instance with room."""
    plane.hosts.machines[f"{HOST}.test"] = FakeMachine(machine_id="m6", gpus=[rtx()])
    plane.add_host(HOST)
    plane.services.vms.create(create_vm("sibling", profile=PROFILE))
    plane.engine.drain()


def _prepare(*, start: bool = True) -> Callable[[ControlPlane], None]:
    def with_vms(plane: ControlPlane) -> None:
        with_sibling(plane)
        plane.services.vms.create(create_vm(profile=PROFILE, start=start))
        plane.engine.drain()

    return with_vms


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=PROFILE)).operation


def _now(verb: str) -> Callable[[ControlPlane], str | None]:
    return lambda plane: getattr(plane.services.vms, verb)("default", "train").operation


CASES = (
    ("create in a shared instance", "create_vm", with_sibling, _create),
    ("start in a shared instance", "start_vm", _prepare(start=False), _now("start")),
    ("stop in a shared instance", "stop_vm", _prepare(), _now("stop")),
    ("delete in a shared instance", "delete_vm", _prepare(), _now("delete")),
)
"""Name, kind, how the world is made, how it begins."""
