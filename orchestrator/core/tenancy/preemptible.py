# SPDX-License-Identifier: Apache-2.0
"""Which VMs may be stopped for a more important one, whoever of them is chosen in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from orchestrator.core.tenancy.quota import Amounts, Limit, amounts_of, totals_of
from orchestrator.core.vms.priority import Priority, rank
from orchestrator.core.vms.vm import Vm


def preemptible(vms: Collection[Vm], limits: Iterable[Limit], *, tenant: str, priority: Priority) -> frozenset[str]:
    """Ids of the VMs that may be stopped, even all of them together, for a VM of ``tenant`` with ``priority``.

    All are of lower priority. Of another tenant's there are only as many as leave it everything up to its own quota;
    what a tenant has without a quota, or from the shared pool, nobody has promised it. An adopted VM is none: its
    definition is not ours, so it could not be placed again.

    :param vms: all VMs of the pool
    """
    totals, promised = totals_of(vms), _promised(limits)
    vm_ids = set()
    for vm in sorted(vms, key=lambda vm: (rank(vm.spec.priority), -vm.created_at, vm.id)):
        if rank(vm.spec.priority) >= rank(priority) or not _has_a_place_to_give(vm):
            continue
        given = amounts_of(vm) - amounts_of(replace(vm, deallocated="preempted"))
        owner = vm.spec.tenant
        if owner == tenant or _keeps(promised.get(owner, {}), totals[owner], given):
            totals[owner] -= given
            vm_ids.add(vm.id)
    return frozenset(vm_ids)


def _has_a_place_to_give(vm: Vm) -> bool:
    return vm.state in {"running", "stopped"} and vm.deallocated is None and vm.spec.adopted is None


def _keeps(promised: Amounts, held: Counter[str], given: Counter[str]) -> bool:
    """Whether, without ``given``, it still holds all that it was promised of what it gives."""
    return all(held[name] - amount >= promised.get(name, 0) for name, amount in given.items())


def _promised(limits: Iterable[Limit]) -> Mapping[str, Amounts]:
    """By tenant and resource."""
    promised: dict[str, dict[str, int]] = {}
    for limit in limits:
        promised.setdefault(limit.tenant, {})[limit.resource] = limit.amount
    return promised
