# SPDX-License-Identifier: Apache-2.0
"""What an operator sets for one host."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.cpus import check_pinnable
from orchestrator.core.hosts.host import MAX_OVERCOMMIT, Host
from orchestrator.core.hosts.nic import check_given
from orchestrator.core.labels import changed_labels
from orchestrator.services.messages import HostChange
from orchestrator.store.transaction import Transaction


def changed(host: Host, change: HostChange) -> Host:
    """:raises InvalidInput: ``label.…``, ``host.overcommit_invalid``"""
    return replace(
        host,
        vcpu_overcommit=_overcommit(host.vcpu_overcommit, change.vcpu_overcommit),
        memory_overcommit=_overcommit(host.memory_overcommit, change.memory_overcommit),
        allow_unconfined=host.allow_unconfined if change.allow_unconfined is None else change.allow_unconfined,
        labels=changed_labels(host.labels, change.labels),
        rdma_nics=host.rdma_nics if change.rdma_nics is None else change.rdma_nics,
    )


def check_nics(tx: Transaction, host: Host, nics: tuple[str, ...]) -> None:
    """Whether VMs may be given functions of these cards. VMs that have some keep them, whatever is said later.

    :raises InvalidInput: ``nic.unknown``; :raises Conflict: ``nic.none_told``"""
    snapshot = tx.hosts.snapshot(host.name)
    check_given(() if snapshot is None else snapshot.nics, nics, host.name)


def keep_cpus(tx: Transaction, host: Host, cpus: tuple[int, ...]) -> None:
    """For VMs that have theirs alone.

    :raises InvalidInput: ``host.cpus_invalid``; :raises Conflict: ``host.cpus_unknown``, ``host.has_vms``"""
    snapshot = tx.hosts.snapshot(host.name)
    check_pinnable(() if snapshot is None else snapshot.nodes, cpus, host.name)
    tx.hosts.keep_cpus(host.name, cpus)


def _overcommit(current: float | None, wanted: float | Literal["site"] | None) -> float | None:
    if wanted is None:
        return current
    if wanted == "site":
        return None
    if not 1.0 <= wanted <= MAX_OVERCOMMIT:
        raise InvalidInput(
            "host.overcommit_invalid", f"an overcommit of {wanted:g} is none", hint=f"1 to {MAX_OVERCOMMIT:g}"
        )
    return wanted
