# SPDX-License-Identifier: Apache-2.0
"""Cards that were moved while their host was off, for scenes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.fakes.fake_machine import FakeMachine

PROFILES = {T4_HOST: "GRID T4-2Q", L40S_HOST: "NVIDIA L40S-12Q"}
SWAPPED = {
    T4_HOST: {"0000:41:00.0": "0000:42:00.0", "0000:42:00.0": "0000:41:00.0"},
    L40S_HOST: {"0000:81:00.0": "0000:82:00.0", "0000:82:00.0": "0000:81:00.0"},
}


def maintain(machine: FakeMachine, moved: Mapping[str, str], new: Mapping[str, str] | None = None) -> None:
    """It is off meanwhile; a service of the host has its functions on again. ``moved``: where cards are now; ``new``:
    address → UUID of the card that replaced one."""
    for gpu in machine.gpus:
        gpu.card = (new or {}).get(gpu.address, gpu.uuid)
        gpu.address = moved.get(gpu.address, gpu.address)
    machine.mdevs.clear()
    machine.vf_types.clear()
    machine.domains = {uuid: (xml, False) for uuid, (xml, _) in machine.domains.items()}


def with_vm(host: str) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        plane.add_host(host)
        plane.services.vms.create(create_vm(profile=PROFILES[host]))
        plane.engine.drain()

    return prepare


def _moved(host: str) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        with_vm(host)(plane)
        maintain(plane.machine(host), SWAPPED[host])

    return prepare


def _accept(host: str) -> Callable[[ControlPlane], str | None]:
    return lambda plane: plane.services.gpu_cards.accept(host, ()).operation


CASES = tuple((f"accept gpus {host}", "accept_gpus", _moved(host), _accept(host)) for host in SWAPPED)
"""Name, kind, the world before, what begins it."""
