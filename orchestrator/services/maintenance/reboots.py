# SPDX-License-Identifier: Apache-2.0
"""The operation that reboots an empty host, as its maintenance begins it."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.gpu.health_states import reason_closed
from orchestrator.core.hosts.host import Host
from orchestrator.core.operation import Operation
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.begin import new_operation, record
from orchestrator.store.transaction import Transaction


def begin_reboot(tx: Transaction, host: Host, *, clock: Clock, ids: Ids, why: str) -> Operation:
    """Of a host on which nothing else is done; no VM starts there until it has ended. Its GPUs that are well now have
    to be so afterwards."""
    snapshot = tx.hosts.snapshot(host.name)
    operation = new_operation("reboot_host", host, clock=clock, ids=ids, why=why)
    well = [
        gpu.address
        for gpu in (() if snapshot is None else snapshot.gpus)
        if gpu.address in host.managed_gpus and gpu.driver is not None and not gpu.problems
        and reason_closed(host.health_of(gpu.address)) is None
    ]  # fmt: skip
    inputs: dict[str, object] = {"boot": "" if snapshot is None else snapshot.boot_id, "well": well}
    record(tx, operation, host=host.name, inputs=inputs)
    tx.hosts.update(replace(host, state="provisioning"))
    return operation
