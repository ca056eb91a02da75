# SPDX-License-Identifier: Apache-2.0
"""VMs for which others have to give their places back. For scenes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.services.messages import CreateVm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm
from tests.operations import several_vgpus


def _wide(name: str, profile: str = "NVIDIA L40S-48Q") -> CreateVm:
    """All of one GPU, so that two leave no room for a third."""
    return replace(create_vm(name, profile=profile), host=L40S_HOST)


def _with_less_important_ones(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)
    plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    for name in ("one", "two"):
        plane.services.vms.create(replace(_wide(name), priority="low"))
    plane.engine.drain()


def _preempt(profile: str) -> Callable[[ControlPlane], str | None]:
    """Begun, and those that have to go have gone."""

    def begin(plane: ControlPlane) -> str | None:
        started = plane.services.vms.create(replace(_wide("train", profile), priority="high", preempt=True))
        plane.engine.waiting[:] = started.first
        plane.engine.drain()
        return started.operation

    return begin


def cancelled(plane: ControlPlane) -> None:
    """What was begun last is given up, and has ended."""
    operation = next(one for one in plane.services.operations.list(unfinished=True, limit=9))
    plane.services.operations.cancel(operation.id)
    plane.engine.submit(operation.id)
    plane.engine.drain()


CASES = (
    ("preempt", "preempt_for_vm", _with_less_important_ones, _preempt("NVIDIA L40S-48Q"), cancelled),
    (
        "preempt for two vGPUs",
        "preempt_for_vm",
        _with_less_important_ones,
        _preempt(several_vgpus.PROFILE),
        cancelled,
    ),
)
"""Name, kind, the world before, what begins it, what takes it back."""
