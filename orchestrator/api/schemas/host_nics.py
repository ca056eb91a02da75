# SPDX-License-Identifier: Apache-2.0
"""Network cards of a host."""

from __future__ import annotations

from orchestrator.api.schemas.base import AnswerBody
from orchestrator.core.hosts.nic import HostNic
from orchestrator.services.messages import HostInfo


class HostNicAnswer(AnswerBody):
    """A network card that can have virtual functions."""

    address: str
    """PCI address."""
    interface: str | None
    """Its own one on the host; null: its driver makes none."""
    numa_node: int | None
    """NUMA node that it is nearest to."""
    given: bool
    """VMs may have functions of it."""
    functions: int
    """Virtual functions that are switched on."""
    taken: int
    """Those of them that VMs have, running or stopped."""
    held: tuple[str, ...]
    """Why others of them can be no VM's."""

    @classmethod
    def of(cls, nic: HostNic, info: HostInfo) -> HostNicAnswer:
        return cls.copied(
            nic,
            given=nic.address in info.host.rdma_nics,
            functions=len(nic.functions),
            taken=sum(function.address in info.nic_functions for function in nic.functions),
            held=tuple(
                f"{function.address}: {function.held}" for function in nic.functions if function.held is not None
            ),
        )
