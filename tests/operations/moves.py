# SPDX-License-Identifier: Apache-2.0
"""VMs that go to another host of the same kind, for scenes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.core.offerings.offering import Offering
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine, l40s

OTHER = "l40s-2"
_BY_UEFI = Offering(name="uefi", origin="site", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q", firmware="uefi")

MIGRATABLE = replace(_BY_UEFI, name="migratable", firmware="bios", migratable=True)


def hosts(plane: ControlPlane) -> None:
    plane.hosts.machines[f"{OTHER}.test"] = FakeMachine(machine_id="m9", gpus=[l40s()])
    plane.add_host(L40S_HOST)
    plane.add_host(OTHER)


def plane_of_hosts(tmp_path: Path) -> ControlPlane:
    """Both, and an offering whose VMs may move while they run."""
    made = control_plane(tmp_path)
    hosts(made)
    with made.store.begin() as tx:
        tx.offerings.put(MIGRATABLE)
    return made


def small_vm_on_each(plane: ControlPlane) -> None:
    """``one`` and ``two``, which may move while they run."""
    with plane.store.begin() as tx:
        tx.offerings.put(MIGRATABLE)
    for name, host in (("one", L40S_HOST), ("two", OTHER)):
        plane.services.vms.create(replace(create_vm(name, profile=MIGRATABLE.name), host=host))
    plane.engine.drain()


def where(plane: ControlPlane) -> dict[str, tuple[str, str]]:
    """Host and state of each VM."""
    return {vm.spec.name: (vm.host, vm.state) for vm in plane.services.vms.list(None)}


def with_stopped_vm(plane: ControlPlane) -> None:
    hosts(plane)
    wanted = replace(create_vm(profile="NVIDIA L40S-12Q", start=False), host=L40S_HOST)
    plane.services.vms.create(wanted)
    plane.engine.drain()


def with_stopped_encrypted_vm(plane: ControlPlane) -> None:
    hosts(plane)
    wanted = create_vm(profile="NVIDIA L40S-12Q", start=False)
    plane.services.vms.create(replace(wanted, host=L40S_HOST, encrypted=True))
    plane.engine.drain()


def with_running_encrypted_vm(plane: ControlPlane) -> None:
    with_stopped_encrypted_vm(plane)
    plane.services.vms.start("default", "train")
    plane.engine.drain()


def with_stopped_vm_by_uefi(plane: ControlPlane) -> None:
    """Whose UEFI variables go with it."""
    hosts(plane)
    with plane.store.begin() as tx:
        tx.offerings.put(_BY_UEFI)
    plane.services.vms.create(replace(create_vm(profile=_BY_UEFI.name, start=False), host=L40S_HOST))
    plane.engine.drain()


def with_running_vm(plane: ControlPlane) -> None:
    with_stopped_vm(plane)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.begin() as tx:
        tx.offerings.put(MIGRATABLE)
    plane.services.vms.create(replace(create_vm(profile=MIGRATABLE.name), host=L40S_HOST))
    plane.engine.drain()


def move_running(plane: ControlPlane) -> str | None:
    return plane.services.moving.move(MoveVm(name="train", tenant="default", cold=True)).operation


def move(plane: ControlPlane) -> str | None:
    return plane.services.moving.move(MoveVm(name="train", tenant="default")).operation


def with_whole_gpu(plane: ControlPlane) -> None:
    """Of a VM that runs."""
    hosts(plane)
    plane.services.vms.create(replace(create_vm(profile="gpu:1"), host=L40S_HOST))
    plane.engine.drain()


CASES = (
    ("move vm", "move_vm", with_stopped_vm, move),
    ("move whole gpu cold", "move_vm_cold", with_whole_gpu, move_running),
    ("move running vm cold", "move_vm_cold", with_running_vm, move_running),
    ("move encrypted vm", "move_vm", with_stopped_encrypted_vm, move),
    ("move running encrypted vm cold", "move_vm_cold", with_running_encrypted_vm, move_running),
    ("move vm by uefi", "move_vm", with_stopped_vm_by_uefi, move),
    ("move running vm", "move_running_vm", with_running_vm, move),
)
"""Name, kind, the world before, what begins it."""
