# SPDX-License-Identifier: Apache-2.0
"""VMs that ask for a scheduler of their GPU, for scenes."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm

_PROFILE = "l40s-12q-equal"


def _prepare(*names: str) -> Callable[[ControlPlane], None]:
    """The host with these VMs, which have the same scheduler."""

    def with_vms(plane: ControlPlane) -> None:
        plane.add_host(L40S_HOST)
        for name in names:
            plane.services.vms.create(create_vm(name, profile=_PROFILE))
        plane.engine.drain()

    return with_vms


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=_PROFILE)).operation


def _delete(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


CASES = (
    ("create scheduled", "create_vm", _prepare(), _create),
    ("create scheduled beside one", "create_vm", _prepare("sibling"), _create),
    ("delete scheduled", "delete_vm", _prepare("train"), _delete),
)
"""Name, kind, the world before, what begins it."""
