# SPDX-License-Identifier: Apache-2.0
"""Hosts as ``host add`` leaves them, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import insert

from orchestrator.core.attachments import observed_on
from orchestrator.core.attachments.host_facts import facts_of
from orchestrator.core.gpu.fabric import FabricSnapshot
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.store.facts_text import facts_text
from orchestrator.store.hosts import PUT_DOCUMENT, look_values
from orchestrator.store.rows import host_values
from orchestrator.store.tables import gpus, hosts, looks
from orchestrator.store.transaction import Transaction

_HOSTS: Final = insert(hosts)
_GPUS: Final = insert(gpus)
_LOOKS: Final = insert(looks)


def add_enrolled(tx: Transaction, seen: Sequence[tuple[Host, HostSnapshot]], turn: int) -> None:
    """They are new; all of their GPUs' virtual functions were switched on by us. ``turn``: the newest at their
    observation."""
    if not seen:
        return
    documents, of_looks = list[dict[str, Any]](), list[dict[str, Any]]()
    for host, snapshot in seen:
        text, look = look_values(host.name, snapshot, turn)
        documents.append({"host": host.name, "document": text})
        judged = look["digest"] if _is_empty(snapshot) else None
        of_looks.append({**look, "judged": judged, "facts": facts_text(facts_of(snapshot))})
    managed = [
        {"host": host.name, "address": gpu.address, "functions_by_us": True, "uuid": gpu.uuid, "serial": gpu.serial}
        for host, snapshot in seen
        for gpu in snapshot.gpus
        if gpu.address in host.managed_gpus
    ]
    tx.connection.execute(_HOSTS, [host_values(host) for host, _ in seen])
    if managed:
        tx.connection.execute(_GPUS, managed)
    tx.connection.execute(PUT_DOCUMENT, documents)
    tx.connection.execute(_LOOKS, of_looks)
    tx.usage.begin_many([host.name for host, _ in seen])


def _is_empty(snapshot: HostSnapshot) -> bool:
    """Nothing is there that could be somebody's: nothing is to be said of it."""
    return not (
        snapshot.domains
        or snapshot.volumes
        or snapshot.seeds
        or snapshot.problems
        or _fabric_speaks(snapshot.fabric)
        or any(one.owner is not None for nic in snapshot.nics for one in nic.functions)
        or any(gpu.instances or any(observed_on(gpu)) for gpu in snapshot.gpus)
    )


def _fabric_speaks(fabric: FabricSnapshot | None) -> bool:
    return fabric is not None and (fabric.problem is not None or any(one.active for one in fabric.partitions))
