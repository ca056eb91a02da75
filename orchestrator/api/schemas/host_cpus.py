# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host as the API tells of them."""

from __future__ import annotations

from pydantic import Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.hosts.cpus import NumaNode, cpus_text


class HugePagesAnswer(CopiedAnswer):
    """Huge pages of one size on a NUMA node."""

    size_kib: int = Field(description="Of each, in KiB")
    total: int = Field(description="That the node has")
    free: int = Field(description="Those of them that nobody uses")
    mounted: bool = Field(description="Whether VMs can have them: hugetlbfs is mounted for that size")


class NumaNodeAnswer(AnswerBody):
    """A NUMA node of a host."""

    id: int
    cpus: str = Field(description="CPUs that are online, as ``0-15,32-47``")
    cores: int = Field(description="That these CPUs belong to; a core of two threads is two CPUs")
    memory_mib: int | None
    hugepages: tuple[HugePagesAnswer, ...] = Field(description="By size; those alone that it has")

    @classmethod
    def of(cls, node: NumaNode) -> NumaNodeAnswer:
        return cls(
            id=node.id,
            cpus=cpus_text(node.cpus),
            cores=len(node.cores),
            memory_mib=node.memory_mib,
            hugepages=tuple(map(HugePagesAnswer.of, node.hugepages)),
        )
