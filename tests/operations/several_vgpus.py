# SPDX-License-Identifier: Apache-2.0
"""VMs with two vGPUs, a GPU each. For scenes."""

from __future__ import annotations

from orchestrator.core.errors import Bug
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm

PROFILE = "l40s-2x48q"


def _prepare(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)


def _with_vm(plane: ControlPlane) -> None:
    _prepare(plane)
    _create(plane)
    plane.engine.drain()
    if len({one.gpu for one in plane.services.vms.get("default", "train").devices}) != 2:
        raise Bug("test.scene", "the VM has not a GPU for each of its vGPUs")


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=PROFILE)).operation


def _stop(plane: ControlPlane) -> str | None:
    return plane.services.vms.stop("default", "train").operation


def _restart(plane: ControlPlane) -> str | None:
    return plane.services.vms.restart("default", "train").operation


def _delete(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


CASES = (
    ("create two vGPUs", "create_vm", _prepare, _create),
    ("stop two vGPUs", "stop_vm", _with_vm, _stop),
    ("restart two vGPUs", "restart_vm", _with_vm, _restart),
    ("delete two vGPUs", "delete_vm", _with_vm, _delete),
)
"""Name, kind, the world before, what begins it."""
