# SPDX-License-Identifier: Apache-2.0
"""The scenes of a VM's life, for VMs of some kind."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.control_plane import ControlPlane

Case = tuple[str, str, Callable[[ControlPlane], None], Callable[[ControlPlane], str | None]]
"""Name, kind, the world before, what begins it."""


def cases_of(
    what: str,
    without_vm: Callable[[ControlPlane], None],
    with_vm: Callable[[ControlPlane], None],
    create: Callable[[ControlPlane], str | None],
) -> tuple[Case, ...]:
    """``what`` such VMs have; the VM is called train."""
    return (
        (f"create {what}", "create_vm", without_vm, create),
        (f"stop {what}", "stop_vm", with_vm, lambda plane: plane.services.vms.stop("default", "train").operation),
        (
            f"restart {what}",
            "restart_vm",
            with_vm,
            lambda plane: plane.services.vms.restart("default", "train").operation,
        ),
        (f"delete {what}", "delete_vm", with_vm, lambda plane: plane.services.vms.delete("default", "train").operation),
    )
