# SPDX-License-Identifier: Apache-2.0
"""Bodies about hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.api.schemas.base import (
    AnswerBody,
    CopiedAnswer,
    LabelsByKey,
    LabelValue,
    Moment,
    Name,
)
from orchestrator.api.schemas.host_parts import FabricAnswer, HostNicAnswer, NumaNodeAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.gpu_tables import model_name
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.cpus import cpus_text, parse_cpus
from orchestrator.core.hosts.features import FEATURES, FeaturesFound
from orchestrator.core.hosts.host import MAX_OVERCOMMIT, Cordon, Host, HostState
from orchestrator.core.hosts.nic import parse_nics
from orchestrator.core.hosts.readiness import Requirement
from orchestrator.core.hosts.snapshot import Confinement, HostSnapshot
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.core.protocol import not_on_bus
from orchestrator.services.messages import AddHost, HostChange, HostInfo, HostKey

Port = Annotated[int, Field(ge=1, le=65535)]
Address = Annotated[str, Field(min_length=1, max_length=255, description="IP address or DNS name")]


class ScanHostBody(StrictForm, example={"address": "192.0.2.10", "port": 22}):
    """Where to look for an SSH host key."""

    address: Address
    port: Port = 22
    """TCP port of SSH."""


class HostKeyAnswer(CopiedAnswer, copies=HostKey):
    """The SSH host key that answers there now; nothing is pinned yet."""


class AddHostBody(
    StrictForm,
    example={
        "name": "gpu1",
        "address": "192.0.2.10",
        "provisioning_key": "(private key in OpenSSH form)",
        "fingerprint": "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGYeGYi2YJKKkoDmSXs",
    },
):
    """A host to enrol."""

    copied_from = (AddHost,)

    name: Name
    address: Address
    port: Port = 22
    user: str = Field(default="root", min_length=1, max_length=64)
    provisioning_key: str = Field(max_length=64 * 1024, repr=False)
    fingerprint: str = Field(max_length=100)
    gpus: str = Field(default="unused", max_length=4096)
    take_over: bool = False

    def to_request(self) -> AddHost:
        return AddHost(**{name: getattr(self, name) for name in type(self).model_fields})


class CheckHostBody(
    StrictForm,
    example={
        "address": "192.0.2.10",
        "provisioning_key": "(private key in OpenSSH form)",
        "fingerprint": "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGYeGYi2YJKKkoDmSXs",
    },
):
    """A host to look at before it is added."""

    address: Address
    port: Port = 22
    """TCP port of SSH."""
    user: str = Field(default="root", min_length=1, max_length=64)
    """Login name on the host."""
    provisioning_key: str = Field(max_length=64 * 1024, repr=False)
    """Used for this look and not kept."""
    fingerprint: str = Field(max_length=100)
    """SHA256:… of the host key that the operator confirmed."""


class RequirementAnswer(CopiedAnswer, copies=Requirement):
    """One thing that a host needs."""


class HostCheckAnswer(AnswerBody):
    """All that a host needs."""

    ready: bool
    """Nothing is missing."""
    requirements: tuple[RequirementAnswer, ...]
    """What was looked at."""

    @classmethod
    def of(cls, requirements: tuple[Requirement, ...]) -> HostCheckAnswer:
        return cls(
            ready=all(requirement.state != "missing" for requirement in requirements),
            requirements=tuple(map(RequirementAnswer.of, requirements)),
        )


class HostProvisioningPlanAnswer(AnswerBody):
    """What provisioning a host would change."""

    changes: tuple[str, ...]
    """Each for people; none: it is as it should be."""


class CordonHostBody(StrictForm, example={"reason": "fan 3 is loud"}):
    """Why a host gets no new VMs."""

    reason: str | None = Field(default=None, min_length=1, max_length=200, pattern=LINE_PATTERN)
    """Why, for people."""


class ForgetHostBody(StrictForm, example={"confirm": "gpu1"}):
    """A host to give up."""

    confirm: str = Field(max_length=63)
    """The host's name once more: its VMs are lost by this."""


Overcommit = Annotated[float, Field(ge=1.0, le=MAX_OVERCOMMIT)] | Literal["site"] | None


class ChangeHostBody(StrictForm, example={"vcpu_overcommit": 2.0, "labels": {"rack": "3"}}):
    """New values of a host; what is not named stays."""

    vcpu_overcommit: Overcommit = None
    """vCPUs that VMs may have together for each of the host's; site: the site's setting."""
    memory_overcommit: Overcommit = None
    """The same for memory."""
    allow_unconfined: bool | None = None
    """Put new VMs there although neither AppArmor nor SELinux confines its QEMUs."""
    pinnable_cpus: str | None = Field(default=None, max_length=1000)
    """CPUs kept for VMs that have theirs alone, as ``4-31``; empty: none. While VMs have a place there it stays as it
    is."""
    rdma_nics: str | None = Field(default=None, max_length=1000)
    """Network cards whose virtual functions VMs may have: PCI addresses with commas; empty: none."""
    labels: dict[str, LabelValue | None] = Field(default={}, max_length=64)
    """By key; null takes one away."""

    def to_request(self) -> HostChange:
        return HostChange(
            vcpu_overcommit=self.vcpu_overcommit,
            memory_overcommit=self.memory_overcommit,
            allow_unconfined=self.allow_unconfined,
            pinnable_cpus=None if self.pinnable_cpus is None else parse_cpus(self.pinnable_cpus),
            rdma_nics=None if self.rdma_nics is None else parse_nics(self.rdma_nics),
            labels=self.labels,
        )


class SoftwareAnswer(AnswerBody, copies=FeaturesFound, defaults=True):
    """What runs on a host, as its agent last said."""

    agent: str
    """Build of our agent."""
    agent_too_old: bool
    """Nothing new is made there until it is upgraded, which happens by itself."""
    kernel: str
    """Release of the kernel."""
    os: str
    """Name and version of the system."""
    libvirt: str
    """Version of libvirt."""
    qemu: str
    """Version of QEMU."""
    nvidia_driver: str | None
    """Version of NVIDIA's host driver."""
    confinement: Confinement | None
    """What keeps its QEMUs to their own files; none: nothing new is put there unless it is allowed; null: not told."""

    @classmethod
    def of(cls, snapshot: HostSnapshot) -> SoftwareAnswer:
        return cls(
            agent=snapshot.agent_version,
            agent_too_old=snapshot.agent_too_old,
            kernel=snapshot.kernel,
            os=snapshot.os_name,
            libvirt=snapshot.libvirt_version,
            qemu=snapshot.qemu_version,
            nvidia_driver=snapshot.driver_version,
            confinement=snapshot.confinement,
            **{} if snapshot.features is None else {name: name in snapshot.features for name in FEATURES},
        )


class HostGpuAnswer(AnswerBody):
    """A GPU of a host, in short."""

    address: str
    """PCI address."""
    model: str
    """As NVIDIA calls it."""
    managed: bool
    """Given to us at host add; no other GPU is touched."""


class HostBridgeAnswer(CopiedAnswer, copies=Bridge):
    """A bridge that the host has by itself."""


class CordonAnswer(CopiedAnswer, copies=Cordon):
    """Who cordoned a host, when and why."""

    at: Moment


class HostAnswer(AnswerBody):
    """A host with what was last seen on it; what nobody has seen yet is null."""

    copied_from = (Host,)

    name: str
    address: str
    port: int
    user: str
    """Login name on the host."""
    state: HostState
    state_reason: str | None
    cordoned: bool
    cordoned_for: str | None
    cordon: CordonAnswer | None
    host_key: str
    """Pinned SSH host key."""
    machine_id: str | None
    last_seen_at: Moment | None
    vcpus: int | None
    """Virtual CPUs."""
    memory_mib: int | None
    """Memory, in MiB."""
    storage_free_bytes: int | None
    """Free space where disks are made."""
    labels: LabelsByKey
    vcpu_overcommit: float | None
    memory_overcommit: float | None
    allow_unconfined: bool
    most_vcpus: int | None
    """That its VMs may have together; one VM has at most ``vcpus``."""
    most_memory_mib: int | None
    """That its VMs may have together."""
    claimed_vcpus: int
    """That its VMs have, running or stopped; without those on pinned CPUs."""
    claimed_memory_mib: int
    """Of its VMs, in MiB."""
    software: SoftwareAnswer | None
    """What runs on it; null: not seen yet."""
    agent_differs: bool
    """The agent is of another build than the server's; upgrade-agent mends it."""
    bridges: tuple[HostBridgeAnswer, ...] | None
    """That networks can be put on; null: not seen yet."""
    pinnable_cpus: str
    pinned_cpus: str
    """Those of them that VMs have, running or stopped."""
    numa_nodes: tuple[NumaNodeAnswer, ...] | None
    """Empty: not told; null: not seen yet."""
    rdma_nics: str
    nics: tuple[HostNicAnswer, ...] | None
    """Network cards that can have virtual functions; empty: none, or not told; null: not seen yet."""
    fabric: FabricAnswer | None
    """null: no GPU of it hangs on NVSwitches, or that is not told."""
    gpus: tuple[HostGpuAnswer, ...]
    """GPUs, by host and address."""
    vms: tuple[str, ...]
    """Names of its VMs, as tenant/name."""
    older_qemu: tuple[str, ...]
    """Ids of its VMs that run by a QEMU which a package has replaced since."""
    problems: tuple[str, ...]
    """What keeps it from being used, for people."""

    @classmethod
    def of(cls, info: HostInfo) -> HostAnswer:
        host, seen = info.host, info.snapshot
        return cls.copied(
            host,
            user=host.provisioning_user,
            vcpus=seen.vcpus if seen else None,
            memory_mib=seen.memory_mib if seen else None,
            storage_free_bytes=seen.storage_free_bytes if seen else None,
            most_vcpus=info.capacity.vcpus if info.capacity else None,
            most_memory_mib=info.capacity.memory_mib if info.capacity else None,
            claimed_vcpus=info.claimed_vcpus,
            claimed_memory_mib=info.claimed_memory_mib,
            software=SoftwareAnswer.of(seen) if seen else None,
            agent_differs=info.agent_differs,
            bridges=seen.bridges if seen else None,
            pinnable_cpus=cpus_text(host.pinnable_cpus),
            pinned_cpus=cpus_text(info.pinned_cpus),
            numa_nodes=tuple(map(NumaNodeAnswer.of, seen.nodes)) if seen else None,
            rdma_nics=",".join(host.rdma_nics),
            nics=tuple(HostNicAnswer.of(nic, info) for nic in seen.nics) if seen else None,
            fabric=FabricAnswer.of(seen) if seen else None,
            gpus=tuple(
                HostGpuAnswer(address=gpu.address, model=model_name(gpu), managed=gpu.address in host.managed_gpus)
                for gpu in (seen.gpus if seen else ())
            ),
            vms=info.vms,
            older_qemu=tuple(domain.uuid for domain in seen.domains if domain.qemu_replaced) if seen else (),
            problems=_problems(host, seen) if seen else (),
        )


def _problems(host: Host, seen: HostSnapshot) -> tuple[str, ...]:
    """What its agent says, and which GPUs of ours are gone."""
    gone = seen.lacks(host.managed_gpus)
    return (*((not_on_bus(gone),) if gone else ()), *seen.problems)
