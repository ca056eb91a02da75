# SPDX-License-Identifier: Apache-2.0
"""VMs that become another size, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.services.messages import ResizeVm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.operations import moves

SIZES = {T4_HOST: ("GRID T4-2Q", "GRID T4-4Q"), L40S_HOST: ("NVIDIA L40S-12Q", "NVIDIA L40S-24Q")}


def of_host(host: str, *, start: bool = True, beside: bool = False, gpus: int = 1) -> Callable[[ControlPlane], None]:
    """``beside``: another VM of its size is on its GPU. ``gpus``: how many the host has."""

    def prepare(plane: ControlPlane) -> None:
        machine = plane.machine(host)
        machine.gpus = machine.gpus[:gpus]
        plane.add_host(host)
        for name in ("train", "other") if beside else ("train",):
            plane.services.vms.create(create_vm(name, profile=SIZES[host][0], start=start))
            plane.engine.drain()

    return prepare


def resize(host: str, *, back: bool = False) -> Callable[[ControlPlane], str | None]:
    profile = SIZES[host][0 if back else 1]
    wanted = ResizeVm(name="train", tenant="default", profile=profile, restart=True)
    return lambda plane: plane.services.resizing.resize(wanted).operation


def more_memory(plane: ControlPlane) -> str | None:
    profile = SIZES[L40S_HOST][0]
    wanted = ResizeVm(name="train", tenant="default", profile=profile, vcpus=3, memory_mib=4096, restart=True)
    return plane.services.resizing.resize(wanted).operation


def full(plane: ControlPlane) -> None:
    """Its host has no place for the larger size, another one has."""
    machine = plane.machine(L40S_HOST)
    machine.gpus = machine.gpus[:1]
    moves.hosts(plane)
    for name in ("train", "other"):
        wanted = replace(create_vm(name, profile=SIZES[L40S_HOST][0], start=name == "other"), host=L40S_HOST)
        plane.services.vms.create(wanted)
        plane.engine.drain()


CASES = (
    ("resize stopped vm", "resize_vm", of_host(L40S_HOST, start=False), resize(L40S_HOST)),
    ("resize running vm", "resize_running_vm", of_host(L40S_HOST), resize(L40S_HOST)),
    ("resize running mdev", "resize_running_vm", of_host(T4_HOST), resize(T4_HOST)),
    ("more memory beside another", "resize_running_vm", of_host(L40S_HOST, beside=True), more_memory),
    ("resize onto another gpu", "resize_running_vm", of_host(L40S_HOST, beside=True, gpus=2), resize(L40S_HOST)),
    ("resize elsewhere", "move_vm", full, resize(L40S_HOST)),
)
"""Name, kind, the world before, what begins it."""
