# SPDX-License-Identifier: Apache-2.0
"""Is the function of a network card that a VM has there, and its alone?"""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.actions.nics import giving_nic
from orchestrator.core.diff.finding import ExpectedVm, Finding, Repair, vm_finding
from orchestrator.core.hosts.nic import NicFunction
from orchestrator.core.hosts.snapshot import HostSnapshot

_GONE = "how many functions a card has is the host's own to say: switch as many on as before, then start the VM again"
_RESTART = "stop it and start it again: both make it anew"


def nic_findings(wanted: ExpectedVm, snapshot: HostSnapshot, *, active: bool) -> Iterator[Finding]:
    """``active``: the VM runs, so that it must have it now. An agent that tells of no card is not judged."""
    vm, place = wanted.vm, wanted.vm.nic
    if place is None or not snapshot.nics:
        return
    there = {one.address: one for nic in snapshot.nics for one in nic.functions}
    found = there.get(place.function)
    text = f"network function {place.function} of card {place.card}"
    if found is None:
        yield vm_finding(vm, "vm.nic_gone", "error", (text, "no such function"), _GONE)
    elif found.owner != vm.id and (active or found.owner is not None or found.held is not None):
        yield vm_finding(vm, "vm.nic_foreign", "error", (text, _whose(found)), _RESTART)
    elif found.owner == vm.id and not active and not wanted.running:
        actions = tuple(one.inverse() for one in giving_nic(vm.id, place))
        repair = Repair(kind="clean_up", automatic=True, actions=actions)
        differ = (f"no {text} while it is stopped", "it has it")
        yield vm_finding(
            vm, "vm.nic_left", "warning", differ, "it is given back to its driver; the claim stays", repair
        )


def _whose(found: NicFunction) -> str:
    return found.held or (f"owned by {found.owner}" if found.owner is not None else "the VM does not have it")
