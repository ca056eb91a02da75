# SPDX-License-Identifier: Apache-2.0
"""Another driver on a host, over a reboot and with OVN too; and a reboot alone. For scenes."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

from orchestrator.core.ovn import HostsOfOvn
from orchestrator.services.drivers.upgrades import WantedUpgrade
from orchestrator.services.maintenance.reboots import begin_reboot
from orchestrator.services.messages import HostChange
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


def _labelled(plane: ControlPlane) -> None:
    _prepare(plane)
    plane.services.hosts.change(L40S_HOST, HostChange(labels={"ovn": "member"}))


def _provision(plane: ControlPlane) -> str | None:
    ovn = HostsOfOvn(central=("192.0.2.41",), network=IPv4Network("192.0.2.0/24"))
    return replace(plane.services.provisioning, ovn=ovn).provision(L40S_HOST).operation


def _upgrade(plane: ControlPlane) -> str | None:
    plane.services.driver_upgrades.start(WantedUpgrade(version=NEW, hosts=(L40S_HOST,)))
    return plane.services.maintenances.get().hosts[0].swap


def _reboot(plane: ControlPlane) -> str:
    """As the keeper begins it."""
    with plane.store.begin() as tx:
        host = tx.hosts.get(L40S_HOST)
        operation = begin_reboot(tx, host, clock=plane.world.clock, ids=plane.ids, why="the reboot")
    plane.engine.submit(operation.id)
    return operation.id


CASES = (
    ("provision host", "provision_host", _labelled, _provision),
    ("upgrade driver", "upgrade_driver", _prepare, _upgrade, cancelled),
    ("upgrade driver over a reboot", "upgrade_driver", _with_held_module, _upgrade, cancelled),
    ("reboot host", "reboot_host", lambda plane: plane.add_host(L40S_HOST), _reboot),
)
