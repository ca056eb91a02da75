# SPDX-License-Identifier: Apache-2.0
"""A VM whose driver does not go with its host's would start and have no GPU: it is refused, naming the table's row."""

from __future__ import annotations

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.check import forbidden_pair
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.vms.vm import Vm
from orchestrator.store.transaction import Transaction


def check_guest_driver(tx: Transaction, vm: Vm) -> None:
    """Nothing is refused that nobody knows: an image of which no driver was told, a driver that no table has.

    :raises Conflict: ``vm.driver_forbidden``
    """
    try:
        driver = tx.images.get(vm.spec.image).guest_driver
    except NotFound:  # of an adopted VM
        return
    snapshot = tx.hosts.snapshot(vm.host) if driver is not None else None
    if driver is None or snapshot is None or snapshot.driver_version is None:
        return
    matrix = shipped_profiles().catalogue.driver_matrix
    why = forbidden_pair(matrix, host_driver=snapshot.driver_version, guest_driver=driver)
    if why is not None:
        raise Conflict(
            "vm.driver_forbidden",
            f"VM {vm.full_name} has driver {driver} and host {vm.host} has {snapshot.driver_version}: {why}",
            hint=f"choose another host or image; 'vgpuctl image guest-driver {vm.spec.image} VERSION' if that is wrong",
        )
