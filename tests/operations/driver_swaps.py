# SPDX-License-Identifier: Apache-2.0
"""Another driver on a host, over a reboot too. For scenes."""

from __future__ import annotations

from orchestrator.services.drivers.upgrades import WantedUpgrade
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane
from tests.fakes.drivers import with_locked_driver
from tests.operations.preemption import cancelled

OLD, NEW = "580.95.02", "580.105.06"


def _prepare(plane: ControlPlane) -> None:
    for host in (T4_HOST, L40S_HOST):
        plane.add_host(host)
    with_locked_driver(plane, NEW, before=OLD)


def _with_held_module(plane: ControlPlane) -> None:
    _prepare(plane)
    plane.machine(L40S_HOST).held = True


def _provision(plane: ControlPlane) -> str | None:
    return plane.services.provisioning.provision(L40S_HOST).operation


def _upgrade(plane: ControlPlane) -> str | None:
    plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=(L40S_HOST,)))
    return plane.services.maintenances.get().hosts[0].swap


CASES = (
    ("provision host", "provision_host", _prepare, _provision),
    ("upgrade driver", "upgrade_driver", _prepare, _upgrade, cancelled),
    ("upgrade driver over a reboot", "upgrade_driver", _with_held_module, _upgrade, cancelled),
)
