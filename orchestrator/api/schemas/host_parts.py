# SPDX-License-Identifier: Apache-2.0
"""CPUs, network cards and the GPU fabric of a host."""

from __future__ import annotations

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer
from orchestrator.core.gpu.fabric import nvlink_domain
from orchestrator.core.hosts.cpus import HugePages, NumaNode, cpus_text
from orchestrator.core.hosts.nic import HostNic
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.services.messages import HostInfo


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


class FabricPartitionAnswer(AnswerBody):
    """A set of GPUs that the host's NVSwitches can join."""

    id: int
    """Stays the same for ever."""
    modules: tuple[int, ...]
    """Module ids of its GPUs, as NVML tells them."""
    active: bool
    """Its GPUs are joined now, and parted from all others."""
    ours: bool
    """Activated for a VM of ours."""


class FabricAnswer(AnswerBody):
    """The fabric manager of a host whose GPUs hang on NVSwitches."""

    version: str | None
    """Its version."""
    problem: str | None
    """Why no GPU of the host is given out as a whole now; null: they are."""
    domain_id: str | None
    """What names the GPUs that can reach each other over NVLink; null: these are in several."""
    partitions: tuple[FabricPartitionAnswer, ...]
    """All that the fabric manager knows."""

    @classmethod
    def of(cls, snapshot: HostSnapshot) -> FabricAnswer | None:
        fabric = snapshot.fabric
        if fabric is None:
            return None
        partitions = tuple(
            FabricPartitionAnswer(
                id=partition.id, modules=partition.modules, active=partition.active, ours=partition.owner is not None
            )
            for partition in fabric.partitions
        )
        domain = nvlink_domain(snapshot.machine_id, (gpu.fabric for gpu in snapshot.gpus))
        return cls(version=fabric.version, problem=fabric.problem, domain_id=domain, partitions=partitions)
