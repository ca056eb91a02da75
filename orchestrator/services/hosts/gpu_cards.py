# SPDX-License-Identifier: Apache-2.0
"""Cards that were moved or replaced: an operator says that they are right where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.operation import FINISHED
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import new_operation, record
from orchestrator.services.messages import Started
from orchestrator.store.database import Store


@dataclass(frozen=True, kw_only=True)
class CardService:
    store: Store
    engine: Engine
    clock: Clock
    ids: Ids

    def accept(self, host: str, addresses: Sequence[str]) -> Started:
        """Cards that are at other addresses now are taken to be the GPUs that they were, and VMs follow them.
        ``addresses``: managed GPUs whose card is another one, which is right.

        :raises NotFound: ``host.unknown``, ``gpu.not_ours``; :raises Conflict: ``host.busy``
        :raises InvalidInput: ``pci.address_invalid``
        """
        named = [parse_pci_address(address) for address in addresses]
        with self.store.begin() as tx:
            standing = tx.hosts.get(host)
            for address in named:
                if address not in standing.managed_gpus:
                    raise NotFound(
                        "gpu.not_ours",
                        f"GPU {address} of host {host} was not given to us",
                        hint=f"'vgpuctl gpu list --host {host}' tells which were",
                    )
            busy = next(
                (operation for operation in tx.operations.of_subject(host) if operation.state not in FINISHED), None
            )
            if busy is not None:
                raise Conflict(
                    "host.busy",
                    f"operation {busy.id} ({busy.kind.replace('_', ' ')}) works on host {host}",
                    hint="wait until it has ended",
                )
            operation = new_operation("accept_gpus", standing, clock=self.clock, ids=self.ids)
            record(tx, operation, host=host, inputs={"addresses": named})
        self.engine.submit(operation.id)
        return Started(operation=operation.id, name=host)
