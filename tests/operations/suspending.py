# SPDX-License-Identifier: Apache-2.0
"""VMs whose memory is on disk, for scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.core.vms.lease import WantedEnd
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.operations.of_one_vm import Case

_PROFILES = {T4_HOST: "GRID T4-2Q", L40S_HOST: "NVIDIA L40S-12Q"}


def running(host: str) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        plane.add_host(host)
        plane.services.vms.create(create_vm(profile=_PROFILES[host]))
        plane.engine.drain()

    return prepare


def suspended(host: str) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        running(host)(plane)
        suspend(plane)
        plane.engine.drain()

    return prepare


def suspend(plane: ControlPlane) -> str | None:
    return plane.services.suspension.suspend("default", "train").operation


def resume(plane: ControlPlane) -> str | None:
    return plane.services.suspension.resume("default", "train").operation


def discard(plane: ControlPlane) -> str | None:
    return plane.services.suspension.discard("default", "train").operation


def delete(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


def _with_lease_over(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    plane.services.vms.create(replace(create_vm(profile=_PROFILES[L40S_HOST]), end=WantedEnd(after_s=3600)))
    plane.engine.drain()
    suspend(plane)
    plane.engine.drain()
    plane.world.clock.sleep(3600)


CASES: tuple[Case, ...] = (
    ("suspend", "suspend_vm", running(L40S_HOST), suspend),
    ("suspend mdev", "suspend_vm", running(T4_HOST), suspend),
    ("resume", "resume_vm", suspended(L40S_HOST), resume),
    ("resume mdev", "resume_vm", suspended(T4_HOST), resume),
    ("discard suspended", "discard_suspended_vm", suspended(L40S_HOST), discard),
    ("delete suspended", "delete_vm", suspended(T4_HOST), delete),
    (
        "lease of suspended over", "free_vm", _with_lease_over,
        lambda plane: plane.reconciler.leases.end_leases(L40S_HOST)[0],
    ),
)  # fmt: skip
