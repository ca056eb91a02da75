# SPDX-License-Identifier: Apache-2.0
"""Devices of domains that run, and data volumes that grow, as the agent handles them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.host_actions import ActionResult, DefineDomain, HostAction
from orchestrator.core.actions.volumes import GrowDataVolume, GrowDisk, PlugDevices
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.hosts.volume_key import check_keys
from orchestrator.sim.machine import DONE, SO_ALREADY, SimulatedMachine, may_die
from orchestrator.sim.pool_actions import pool_with
from orchestrator.sim.vm_actions import define


def plug(machine: SimulatedMachine, action: PlugDevices) -> ActionResult:
    """Its guest lets go of everything at once. :raises Conflict: ``vm.no_port``"""
    defining, domain = DefineDomain(vm=action.vm, domain=action.domain), machine.domains.get(action.vm)
    if domain is None or not domain.running:
        return define(machine, defining)
    check_keys(action.domain.data, action.keys)
    data, cards = action.domain.data, len(action.domain.networks)
    more = len(data) + cards - len(domain.data) - domain.cards
    if more > domain.free_ports:
        raise Conflict("vm.no_port", "the running VM has no free PCIe port for it")
    result = define(machine, defining)
    for file in filter(pool_of, {*data} ^ {*domain.data}):
        pool_with(machine, file).writers.pop(file, None)
    for file in filter(pool_of, data):
        pool_with(machine, file).writers[file] = machine.machine_id, action.vm
    domain.data, domain.cards, domain.free_ports = data, cards, domain.free_ports - more
    domain.limits = (action.domain.disk_limits, *action.domain.data_limits)
    may_die(machine)
    return result


def grow(machine: SimulatedMachine, action: GrowDataVolume) -> ActionResult:
    """:raises NotFound: ``volume.missing``; :raises Conflict: ``volume.differs``: it is larger"""
    return _grow(machine, action, machine.data, "the data volume")


def grow_disk(machine: SimulatedMachine, action: GrowDisk) -> ActionResult:
    """As :func:`grow`."""
    return _grow(machine, action, machine.volumes, "the VM's disk")


def _grow(
    machine: SimulatedMachine, action: GrowDataVolume | GrowDisk, own: dict[str, int], what: str
) -> ActionResult:  # fmt: skip
    """``own``: files of the machine's own directory."""
    files = own if pool_of(action.volume) is None else pool_with(machine, action.volume).files
    if action.volume not in files:
        raise NotFound("volume.missing", f"{what} is not on the host")
    before = files[action.volume]
    if before > action.size_bytes:
        raise Conflict("volume.differs", f"{what} is larger")
    files[action.volume] = action.size_bytes
    may_die(machine)
    return SO_ALREADY if before == action.size_bytes else DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    PlugDevices: plug,
    GrowDataVolume: grow,
    GrowDisk: grow_disk,
}
