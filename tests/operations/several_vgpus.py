# SPDX-License-Identifier: Apache-2.0
"""VMs with two vGPUs, a GPU each. For scenes."""

from __future__ import annotations

from orchestrator.core.errors import Bug
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.operations.of_one_vm import cases_of

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


CASES = cases_of("two vGPUs", _prepare, _with_vm, _create)
