# SPDX-License-Identifier: Apache-2.0
"""A host or GPU that a request names has to be known, before any is tried."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.errors import NotFound
from orchestrator.core.names import near
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Viewed
from orchestrator.store.transaction import Transaction


def check_named(tx: Transaction, fleet: FleetIndex, host: str | None, gpu: str | None) -> None:
    """``gpu``: a PCI address, which GPUs of several hosts may have. Ask inside :meth:`FleetIndex.current`.

    :raises NotFound: ``host.unknown``; ``gpu.unknown``: the host has no such GPU, or none has
    """
    if host is not None:
        tx.hosts.get(host)
    if gpu is None:
        return
    viewed = fleet.fleet().hosts if host is None else tuple(filter(None, (fleet.host(host),)))
    known = _addresses(viewed)
    if gpu in known:
        return
    elsewhere = (
        [] if host is None else sorted(other.view.name for other in fleet.fleet().hosts if gpu in _addresses([other]))
    )
    of_host = "no host" if host is None else f"host {host}"
    command = "vgpuctl gpu list" if host is None else f"vgpuctl gpu list --host {host}"
    hint = near(gpu, sorted(known), command)
    raise NotFound(
        "gpu.unknown",
        f"{of_host} has {'a' if host is None else 'no'} GPU {gpu}",
        hint=f"host {elsewhere[0]} has one; {hint}" if elsewhere else hint,
    )


def _addresses(hosts: Iterable[Viewed]) -> frozenset[str]:
    return frozenset(gpu.gpu_id for viewed in hosts for gpu in viewed.view.gpus)
