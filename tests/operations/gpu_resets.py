# SPDX-License-Identifier: Apache-2.0
"""A GPU without VMs that is reset, for scenes."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.services.hosts.gpu_health import close_for_mending
from tests.fakes.control_plane import A100_HOST, L40S_HOST, ControlPlane


def _added(host: str, *, mig: bool) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        if mig:
            plane.machine(host).gpus[0].mig = True
        plane.add_host(host)
        with plane.store.begin() as tx:
            gpu = plane.machine(host).gpus[0].address
            close_for_mending(tx, tx.hosts.get(host), gpu, plane.world.clock.now(), "it is reset")

    return prepare


def _reset(host: str) -> Callable[[ControlPlane], str | None]:
    return lambda plane: plane.services.gpu_cards.reset(host, plane.machine(host).gpus[0].address).operation


CASES = (
    ("reset gpu", "reset_gpu", _added(L40S_HOST, mig=False), _reset(L40S_HOST)),
    ("reset gpu in mig mode", "reset_gpu", _added(A100_HOST, mig=True), _reset(A100_HOST)),
)
"""Name, kind, the world before, what begins it."""
