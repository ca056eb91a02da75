# SPDX-License-Identifier: Apache-2.0
"""CPUs of a host as the API tells of them."""

from __future__ import annotations

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.hosts.cpus import HugePages, NumaNode, cpus_text


class HugePagesAnswer(CopiedAnswer, copies=HugePages):
    """Huge pages of one size on a NUMA node."""


class NumaNodeAnswer(AnswerBody, copies=NumaNode):
    """A NUMA node of a host."""

    cpus: str
    """CPUs that are online, as ``0-15,32-47``."""
    cores: int
    hugepages: tuple[HugePagesAnswer, ...]

    @classmethod
    def of(cls, node: NumaNode) -> NumaNodeAnswer:
        return cls.copied(node, cpus=cpus_text(node.cpus), cores=len(node.cores))
