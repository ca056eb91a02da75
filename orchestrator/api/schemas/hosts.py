# SPDX-License-Identifier: Apache-2.0
"""Bodies about hosts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import (
    AnswerBody,
    CopiedAnswer,
    LabelValue,
    Name,
    RequestBody,
    moment,
    moment_or_none,
)
from orchestrator.api.schemas.fabric import FabricAnswer
from orchestrator.api.schemas.host_cpus import NumaNodeAnswer
from orchestrator.api.schemas.host_nics import HostNicAnswer
from orchestrator.core.actions.after_boot import not_on_bus
from orchestrator.core.hosts.cpus import cpus_text, parse_cpus
from orchestrator.core.hosts.host import MAX_OVERCOMMIT, Cordon, Host, HostState
from orchestrator.core.hosts.nic import parse_nics
from orchestrator.core.hosts.readiness import ReadinessState, Requirement
from orchestrator.core.hosts.snapshot import Confinement, HostSnapshot
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.services.messages import AddHost, HostChange, HostInfo

Port = Annotated[int, Field(ge=1, le=65535)]
Address = Annotated[str, Field(min_length=1, max_length=255, description="IP address or DNS name")]


class ScanBody(RequestBody):
    """Where to look for an SSH host key."""

    model_config = ConfigDict(title="ScanHost", json_schema_extra={"examples": [{"address": "192.0.2.10", "port": 22}]})

    address: Address
    port: Port = 22


class HostKeyAnswer(CopiedAnswer):
    """The SSH host key that answers there now; nothing is pinned yet."""

    type: str
    key: str
    fingerprint: str


class AddHostBody(RequestBody):
    """A host to enrol."""

    model_config = ConfigDict(
        title="AddHost",
        json_schema_extra={
            "examples": [
                {
                    "name": "gpu1",
                    "address": "192.0.2.10",
                    "provisioning_key": "(private key in OpenSSH form)",
                    "fingerprint": "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGYeGYi2YJKKkoDmSXs",
                }
            ]
        },
    )

    name: Name
    address: Address
    port: Port = 22
    user: str = Field(default="root", min_length=1, max_length=64)
    provisioning_key: str = Field(max_length=64 * 1024, repr=False, description="Private key for Ansible alone")
    fingerprint: str = Field(max_length=100, description="SHA256:… of the host key that the operator confirmed")
    gpus: str = Field(default="unused", max_length=4096, description="unused, all or PCI addresses with commas")
    take_over: bool = Field(default=False, description="Take a host that obeys another control plane")

    def to_request(self) -> AddHost:
        """What the service takes."""
        return AddHost(**{name: getattr(self, name) for name in type(self).model_fields})


class CheckHostBody(RequestBody):
    """A host to look at before it is added."""

    model_config = ConfigDict(
        title="CheckHost",
        json_schema_extra={
            "examples": [
                {
                    "address": "192.0.2.10",
                    "provisioning_key": "(private key in OpenSSH form)",
                    "fingerprint": "SHA256:uNiVztksCsDhcc0u9e8BrrJXVGYeGYi2YJKKkoDmSXs",
                }
            ]
        },
    )

    address: Address
    port: Port = 22
    user: str = Field(default="root", min_length=1, max_length=64)
    provisioning_key: str = Field(max_length=64 * 1024, repr=False, description="Used for this look and not kept")
    fingerprint: str = Field(max_length=100, description="SHA256:… of the host key that the operator confirmed")


class RequirementAnswer(CopiedAnswer):
    """One thing that a host needs."""

    name: str
    state: ReadinessState = Field(description="advice: it works without, and will not always")
    found: str
    remedy: str | None = Field(description="null: there is nothing to do")


class HostCheckAnswer(AnswerBody):
    """All that a host needs."""

    ready: bool = Field(description="Nothing is missing")
    requirements: tuple[RequirementAnswer, ...]

    @classmethod
    def of(cls, found: tuple[Requirement, ...]) -> HostCheckAnswer:
        return cls(
            ready=all(one.state != "missing" for one in found),
            requirements=tuple(map(RequirementAnswer.of, found)),
        )


class CordonBody(RequestBody):
    """Why a host gets no new VMs."""

    model_config = ConfigDict(title="CordonHost", json_schema_extra={"examples": [{"reason": "fan 3 is loud"}]})

    reason: str | None = Field(default=None, min_length=1, max_length=200, pattern=LINE_PATTERN)


class ForgetBody(RequestBody):
    """A host to give up."""

    model_config = ConfigDict(title="ForgetHost", json_schema_extra={"examples": [{"confirm": "gpu1"}]})

    confirm: str = Field(max_length=63, description="The host's name once more: its VMs are lost by this")


Overcommit = Annotated[float, Field(ge=1.0, le=MAX_OVERCOMMIT)] | Literal["site"] | None


class ChangeHostBody(RequestBody):
    """New values of a host; what is not named stays."""

    model_config = ConfigDict(
        title="ChangeHost", json_schema_extra={"examples": [{"vcpu_overcommit": 2.0, "labels": {"rack": "3"}}]}
    )

    vcpu_overcommit: Overcommit = Field(
        default=None, description="vCPUs that VMs may have together for each of the host's; site: the site's setting"
    )
    memory_overcommit: Overcommit = Field(default=None, description="The same for memory")
    allow_unconfined: bool | None = Field(
        default=None, description="Put new VMs there although neither AppArmor nor SELinux confines its QEMUs"
    )
    pinnable_cpus: str | None = Field(
        default=None,
        max_length=1000,
        description="CPUs kept for VMs that have theirs alone, as ``4-31``; empty: none. While VMs have a place there "
        "it stays as it is",
    )
    rdma_nics: str | None = Field(
        default=None,
        max_length=1000,
        description="Network cards whose virtual functions VMs may have: PCI addresses with commas; empty: none",
    )
    labels: dict[str, LabelValue | None] = Field(default={}, max_length=64, description="By key; null takes one away")

    def to_request(self) -> HostChange:
        """What the service takes."""
        return HostChange(
            vcpu_overcommit=self.vcpu_overcommit,
            memory_overcommit=self.memory_overcommit,
            allow_unconfined=self.allow_unconfined,
            pinnable_cpus=None if self.pinnable_cpus is None else parse_cpus(self.pinnable_cpus),
            rdma_nics=None if self.rdma_nics is None else parse_nics(self.rdma_nics),
            labels=self.labels,
        )


class SoftwareAnswer(AnswerBody):
    """What runs on a host, as its agent last said."""

    agent: str
    agent_too_old: bool = Field(description="Nothing new is made there until it is upgraded, which happens by itself")
    kernel: str
    os: str
    libvirt: str
    qemu: str
    nvidia_driver: str | None
    confinement: Confinement | None = Field(
        description="What keeps its QEMUs to their own files; none: nothing new is put there unless it is allowed; "
        "null: not told"
    )
    uefi: bool | None = Field(
        default=None, description="Whether VMs can boot by UEFI there, without Secure Boot; null: not told"
    )

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
            uefi=None if snapshot.features is None else "uefi" in snapshot.features,
        )


class HostGpuAnswer(AnswerBody):
    """A GPU of a host, in short."""

    address: str
    model: str
    managed: bool


class HostBridgeAnswer(CopiedAnswer):
    """A bridge that the host has by itself."""

    name: str
    kind: Literal["linux", "openvswitch"] = Field(description="No VM is put on one of Open vSwitch")
    vlans: tuple[str, ...] = Field(description="VLANs that leave through it, as ``br0.120``")


class CordonAnswer(AnswerBody):
    """Who cordoned a host, when and why."""

    at: datetime
    by: str = Field(description="Login name, token or uid of whoever cordoned it")
    reason: str | None


def _cordon(cordon: Cordon | None) -> CordonAnswer | None:
    return None if cordon is None else CordonAnswer(at=moment(cordon.at), by=cordon.by, reason=cordon.reason)


class HostAnswer(AnswerBody):
    """A host with what was last seen on it; what nobody has seen yet is null."""

    name: str
    address: str
    port: int
    user: str
    state: HostState
    state_reason: str | None
    cordoned: bool
    cordoned_for: str | None
    cordon: CordonAnswer | None = Field(description="Of a person; null: nobody cordoned it, or that is not on record")
    host_key: str
    machine_id: str | None
    last_seen_at: datetime | None
    vcpus: int | None
    memory_mib: int | None
    storage_free_bytes: int | None
    labels: dict[str, str]
    vcpu_overcommit: float | None = Field(description="Set for this host; null: the site's setting holds")
    memory_overcommit: float | None = Field(description="Set for this host; null: the site's setting holds")
    allow_unconfined: bool = Field(description="New VMs are put there even where its QEMUs are not confined")
    most_vcpus: int | None = Field(description="That its VMs may have together; one VM has at most ``vcpus``")
    most_memory_mib: int | None = Field(description="That its VMs may have together")
    claimed_vcpus: int = Field(description="That its VMs have, running or stopped; without those on pinned CPUs")
    claimed_memory_mib: int
    software: SoftwareAnswer | None
    agent_differs: bool = Field(description="The agent is of another build than the server's; upgrade-agent mends it")
    bridges: tuple[HostBridgeAnswer, ...] | None = Field(description="That networks can be put on; null: not seen yet")
    pinnable_cpus: str = Field(description="CPUs kept for VMs that have theirs alone, as ``4-31``; empty: none")
    pinned_cpus: str = Field(description="Those of them that VMs have, running or stopped")
    numa_nodes: tuple[NumaNodeAnswer, ...] | None = Field(description="Empty: not told; null: not seen yet")
    rdma_nics: str = Field(description="Network cards whose virtual functions VMs may have; empty: none")
    nics: tuple[HostNicAnswer, ...] | None = Field(
        description="Network cards that can have virtual functions; empty: none, or not told; null: not seen yet"
    )
    fabric: FabricAnswer | None = Field(description="null: no GPU of it hangs on NVSwitches, or that is not told")
    gpus: tuple[HostGpuAnswer, ...]
    vms: tuple[str, ...]
    problems: tuple[str, ...]

    @classmethod
    def of(cls, info: HostInfo) -> HostAnswer:
        host, seen = info.host, info.snapshot
        return cls(
            name=host.name,
            address=host.address,
            port=host.port,
            user=host.provisioning_user,
            state=host.state,
            state_reason=host.state_reason,
            cordoned=host.cordoned,
            cordoned_for=host.cordoned_for,
            cordon=_cordon(host.cordon),
            host_key=host.host_key,
            machine_id=host.machine_id,
            last_seen_at=moment_or_none(host.last_seen_at),
            vcpus=seen.vcpus if seen else None,
            memory_mib=seen.memory_mib if seen else None,
            storage_free_bytes=seen.storage_free_bytes if seen else None,
            labels=dict(host.labels),
            vcpu_overcommit=host.vcpu_overcommit,
            memory_overcommit=host.memory_overcommit,
            allow_unconfined=host.allow_unconfined,
            most_vcpus=info.capacity.vcpus if info.capacity else None,
            most_memory_mib=info.capacity.memory_mib if info.capacity else None,
            claimed_vcpus=info.claimed_vcpus,
            claimed_memory_mib=info.claimed_memory_mib,
            software=SoftwareAnswer.of(seen) if seen else None,
            agent_differs=info.agent_differs,
            bridges=tuple(map(HostBridgeAnswer.of, seen.bridges)) if seen else None,
            pinnable_cpus=cpus_text(host.pinnable_cpus),
            pinned_cpus=cpus_text(info.pinned_cpus),
            numa_nodes=tuple(map(NumaNodeAnswer.of, seen.nodes)) if seen else None,
            rdma_nics=",".join(host.rdma_nics),
            nics=tuple(HostNicAnswer.of(one, info) for one in seen.nics) if seen else None,
            fabric=FabricAnswer.of(seen) if seen else None,
            gpus=tuple(
                HostGpuAnswer(address=gpu.address, model=gpu.model, managed=gpu.address in host.managed_gpus)
                for gpu in (seen.gpus if seen else ())
            ),
            vms=info.vms,
            problems=_problems(host, seen) if seen else (),
        )


def _problems(host: Host, seen: HostSnapshot) -> tuple[str, ...]:
    """What its agent says, and which GPUs of ours are gone."""
    gone = seen.lacks(host.managed_gpus)
    return (*((not_on_bus(gone),) if gone else ()), *seen.problems)
