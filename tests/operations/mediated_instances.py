# SPDX-License-Identifier: Apache-2.0
"""VMs whose vGPUs are mediated devices in GPU instances, beside one that nothing may disturb. For scenes."""

from __future__ import annotations

from orchestrator.core.errors import Bug
from tests.fakes.control_plane import ControlPlane, create_vm
from tests.fakes.fake_machine import FakeMachine, a100
from tests.operations.of_one_vm import cases_of

HOST = "a100-older"
PROFILE = "GRID A100D-1-20C"


def _prepare(plane: ControlPlane) -> None:
    plane.hosts.machines[f"{HOST}.test"] = FakeMachine(machine_id="m7", gpus=[a100(framework="mdev")])
    plane.add_host(HOST)
    plane.services.vms.create(create_vm("sibling", profile="GRID A100D-1-10C"))
    plane.engine.drain()


def _with_vm(plane: ControlPlane) -> None:
    _prepare(plane)
    _create(plane)
    plane.engine.drain()
    machine = plane.machine(HOST)
    (gpu,) = machine.gpus
    if set(gpu.inside) != {parent for parent, _, _ in machine.mdevs.values()} or len(gpu.instances) != 2:
        raise Bug("test.scene", "not every mediated device lies in a GPU instance")


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=PROFILE)).operation


CASES = cases_of("mediated in an instance", _prepare, _with_vm, _create)
