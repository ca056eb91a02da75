# SPDX-License-Identifier: Apache-2.0
"""Which VM that runs has which CPU alone. The controller is not believed: no CPU is given to two of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from orchestrator.agent.ledger import Ledger
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.cpus import own_cpus

_PREFIX: Final = "cpu:"


@dataclass(frozen=True)
class PinnedCpus:
    """In the ledger from a VM's start until its stop, or until the host's next boot."""

    ledger: Ledger

    def take(self, vm: str, affinity: Iterable[str]) -> None:
        """Before it starts. :raises Conflict: ``vm.cpu_foreign``: another that runs has one of them"""
        cpus = own_cpus(affinity)
        owners = self.ledger.owned(_PREFIX)
        for cpu in sorted(cpus):
            owner = owners.get(str(cpu))
            if owner is not None and owner.vm != vm:
                raise Conflict(
                    "vm.cpu_foreign",
                    f"the VM's definition pins CPU {cpu}, which another VM has alone",
                    hint="look at the host: 'vgpuctl doctor --host HOST'",
                    details=f"owner {owner.vm}",
                )
        for cpu in cpus:
            self.ledger.claim(f"{_PREFIX}{cpu}", vm, until_reboot=True)

    def give_back(self, vm: str) -> None:
        """It does not run. Gone already is fine."""
        for cpu, owner in self.ledger.owned(_PREFIX).items():
            if owner.vm == vm:
                self.ledger.release(f"{_PREFIX}{cpu}")
