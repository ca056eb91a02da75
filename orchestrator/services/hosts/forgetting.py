# SPDX-License-Identifier: Apache-2.0
"""Giving up a host that will never come back: what was on it is lost, what it held is free again."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.host import LOST, Host
from orchestrator.services.acting import actor
from orchestrator.store.transaction import Transaction

_GIVEN_UP = "given up: whatever is there is no longer ours to touch"


def forget(tx: Transaction, name: str, confirm: str, now: float) -> Host:
    """The host as it is from now on. Forgotten already is fine.

    :raises NotFound: ``host.unknown``; :raises InvalidInput: ``host.not_confirmed``
    :raises Conflict: ``host.answers``: it can be emptied and removed in good order
    """
    host = tx.hosts.get(name)
    if confirm != name:
        raise InvalidInput(
            "host.not_confirmed",
            "giving up a host has to be confirmed with its name",
            hint=f"'vgpuctl host forget {name} --confirm {name}' does it",
        )
    if host.state == "forgotten":
        return host
    if host.state not in LOST:
        raise Conflict(
            "host.answers",
            f"host {name} is {host.state}, not lost",
            hint=f"delete its VMs, then 'vgpuctl host remove {name}' gives it back as it was",
        )
    ended = _end_operations(tx, name, now)
    lost = tx.vms.list(host=name)
    for vm in lost:
        tx.claims.free_place(vm.id)
        tx.vms.update(replace(vm, state="lost", addresses=()))
    volumes = tx.volumes.lose(name)
    forgotten = replace(host, state="forgotten", state_reason=_GIVEN_UP, cordoned=True)
    tx.hosts.update(forgotten)
    volumes_too = f" and {volumes} volumes" if volumes else ""
    outcome = f"{len(lost)} VMs{volumes_too} are lost, {ended} operations were ended"
    tx.audit.append(at=now, actor=actor(), action="forget_host", subject=name, outcome=outcome)
    return forgotten


def _end_operations(tx: Transaction, host: str, now: float) -> int:
    """Those that have not ended, and those that wait for a person: nobody can finish them any more."""
    note = "its host was given up: nobody knows what of it remains there"
    left = [
        operation
        for operation in tx.operations.list(unfinished=True, limit=1_000_000)
        if tx.operations.get(operation.id).host == host
    ]
    left += tx.operations.stuck_on(host)
    at = tx.time.no_earlier(now)
    for operation in left:
        # A run that is under way is overtaken: it can write nothing any more.
        ended = replace(operation, state="undone", attempt=operation.attempt + 1, finished_at=at, remainder=())
        tx.operations.update(replace(ended, warnings=(*operation.warnings, note)))
    return len(left)
