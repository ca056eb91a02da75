# SPDX-License-Identifier: Apache-2.0
"""VMs with whole GPUs of an NVSwitch baseboard, for scenes."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.control_plane import ControlPlane, create_vm
from tests.fakes.fake_machine import hgx

HOST = "hgx"


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
