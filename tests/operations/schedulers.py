# SPDX-License-Identifier: Apache-2.0
"""VMs that ask for more than a vGPU: a setting of its GPU, parameters of its own. For scenes."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.gpu.vgpu_parameters import VgpuParameters
from orchestrator.core.offerings.offering import Offering
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm

_PROFILE, _MIXED, _OTHER = "l40s-12q-equal", "l40s-12q-mixed", "l40s-24q-mixed"
_DEBUGGED = Offering(
    name="debugged", origin="site", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q",
    parameters=VgpuParameters(debugging=True),
)  # fmt: skip


def _prepare(*names: str, profile: str = _PROFILE) -> Callable[[ControlPlane], None]:
    """The host with these VMs, which ask for the same."""

    def with_vms(plane: ControlPlane) -> None:
        plane.add_host(L40S_HOST)
        for name in names:
            plane.services.vms.create(create_vm(name, profile=profile))
        plane.engine.drain()

    return with_vms


def _create(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=_PROFILE)).operation


def _create_mixed(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=_OTHER)).operation


def _stop(plane: ControlPlane) -> str | None:
    return plane.services.vms.stop("default", "train").operation


def _with_offering(*names: str) -> Callable[[ControlPlane], None]:
    """The host, and VMs that may be debugged."""

    def with_vms(plane: ControlPlane) -> None:
        _prepare()(plane)
        with plane.store.begin() as tx:
            tx.offerings.put(_DEBUGGED)
        for name in names:
            plane.services.vms.create(create_vm(name, profile=_DEBUGGED.name))
        plane.engine.drain()

    return with_vms


def _create_debugged(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(create_vm(profile=_DEBUGGED.name)).operation


def _delete(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


CASES = (
    ("create scheduled", "create_vm", _prepare(), _create),
    ("create scheduled beside one", "create_vm", _prepare("sibling"), _create),
    ("delete scheduled", "delete_vm", _prepare("train"), _delete),
    ("create mixed", "create_vm", _prepare(), _create_mixed),
    ("create mixed beside one", "create_vm", _prepare("sibling", profile=_MIXED), _create_mixed),
    ("stop mixed", "stop_vm", _prepare("sibling", "train", profile=_MIXED), _stop),
    ("delete mixed", "delete_vm", _prepare("train", profile=_MIXED), _delete),
    ("create with parameters", "create_vm", _with_offering(), _create_debugged),
    ("delete with parameters", "delete_vm", _with_offering("train"), _delete),
)
"""Name, kind, the world before, what begins it."""
