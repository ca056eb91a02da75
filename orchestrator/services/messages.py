# SPDX-License-Identifier: Apache-2.0
"""What goes into and comes out of the services: plain frozen values, the same for API, tests and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.gpu.health_states import HealthState
from orchestrator.core.guest.settings import SettingValue
from orchestrator.core.hosts.domain import BootPolicy
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.offerings.offering import Offering, OfferingKind, VmSize, unsupported
from orchestrator.core.vms.claim import HostCapacity
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.core.vms.vm import VmShape, VmSpec


@dataclass(frozen=True, kw_only=True)
class CreateVm(VmShape):
    """A wanted VM. ``user_data`` is the text itself; it is stored encrypted and never shown again."""

    network: str = "default"
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Address of its card on a network of kind ovn, by what the tenant calls that; with a comma one of IPv4 and one of
    IPv6. Others get free ones."""
    user_data: str | None = field(default=None, repr=False)
    from_snapshot: str | None = None
    """``VM/SNAPSHOT``, of its tenant: its disk is a copy of that, on the same host and image."""
    from_backup: str | None = None
    """Id of a backup of its tenant, or how that begins: its disk is what that holds."""
    boot_timeout_s: int = 0
    """Not 0: it is made to see whether its backup boots, for which it has so many seconds, and is removed then."""
    start: bool = True
    """Whether it is started."""
    label: str | None = None
    """Marks VMs that belong together in a file for apply."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Say nothing about what the VM is."""
    protected: bool = False
    """Whether it is refused to delete it until this is taken back."""
    preempt: bool = False
    """When it does not fit, VMs of lower priority may be moved for it, or stopped."""
    with_moves: bool = False
    """When it does not fit, VMs may be moved for it, and it is made when they have."""
    end: WantedEnd = field(default_factory=WantedEnd)
    """Of its lease."""
    provision: tuple[str, ...] = ()
    """Roles that are run in its guest, beside those of its offering."""
    no_provision: bool = False
    """Those of its offering are not run."""
    provision_settings: Mapping[str, SettingValue] = field(default_factory=dict)
    provision_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Both as core/guest/settings.py has them, by name."""

    @property
    def begins(self) -> tuple[str, dict[str, object]]:
        """The kind of operation that makes it, and what that alone has to know."""
        if self.boot_timeout_s:
            return "boot_backup", {"boot_timeout_s": self.boot_timeout_s}
        return "create_vm" if self.start else "create_stopped_vm", {}


@dataclass(frozen=True, kw_only=True)
class VmChange:
    """What is set of a VM without touching what it is."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    """By key; None takes one away."""
    protected: bool | None = None
    """None: it stays."""

    @property
    def words(self) -> str:
        labels = [f"{key}={value}" if value is not None else f"no {key}" for key, value in self.labels.items()]
        kept = [] if self.protected is None else ["protected" if self.protected else "not protected"]
        return ", ".join([*labels, *kept])


@dataclass(frozen=True, kw_only=True)
class AdoptVm:
    """A domain that somebody else made and that shall be a VM of ours. ``domain``: its name or UUID on the host."""

    host: str
    """Name of the host."""
    domain: str
    """Name or UUID of the libvirt domain."""
    tenant: str
    """Whose it is."""
    name: str | None = None
    """What the VM is called; None: as the domain."""
    boot_policy: BootPolicy = "local"
    """Who starts it again after a reboot of its host."""
    although_managed_by: str | None = None
    """The other controller that it is taken from."""


@dataclass(frozen=True, kw_only=True)
class AddHost:
    """A host to enrol. ``gpus`` is ``unused``, ``all`` or PCI addresses separated by commas."""

    name: str
    """What it is called."""
    address: str
    port: int = 22
    """TCP port of SSH."""
    user: str = "root"
    """Login name on the host."""
    provisioning_key: str = field(repr=False)
    """Private key in OpenSSH or PEM form, for Ansible alone."""
    fingerprint: str
    """``SHA256:…`` of the host key that the operator confirmed."""
    gpus: str = "unused"
    """unused, all or PCI addresses with commas."""
    take_over: bool = False
    """Take a host that obeys another control plane."""


@dataclass(frozen=True, kw_only=True)
class HostKey:
    """What a host presents: ``type`` and base64 ``key`` as in known_hosts, ``fingerprint`` as ``SHA256:…``."""

    type: str
    """Kind of it."""
    key: str
    """The public key, base64."""
    fingerprint: str
    """As ssh-keygen prints it."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A change that was accepted. ``operation`` is None when nothing has to be done."""

    operation: str | None
    name: str
    existing: bool = False
    """The same request was made before; ``operation`` is the one it started, if it still matters."""
    first: tuple[str, ...] = ()
    """Ids of operations that make room for it."""
    preempted: tuple[str, ...] = ()
    """``tenant/name`` of the VMs that are stopped for it."""
    moved: tuple[str, ...] = ()
    """``tenant/name`` of the VMs that move for it."""
    provisioning: str | None = None
    """Id of the operation that then runs roles in the guest."""


@dataclass(frozen=True, kw_only=True)
class MoveVm:
    """A VM that is to go to another host."""

    name: str
    tenant: str
    host: str | None = None
    """None: where placement puts it."""
    gpu: str | None = None
    """PCI address of the GPU of that host that it gets; None: where placement puts it."""
    max_bytes_per_s: int | None = None
    """Of the copy of its disk; None: as fast as it goes."""
    why: str | None = None
    """Why it is begun where nobody asked for it itself."""
    cold: bool = False
    """One that runs is shut down for it, and started there."""
    or_cold: bool = False
    """So is one that may not move while it runs, or whose move fails."""
    force: bool = False
    """Whatever its tenant's policy says of when its VMs may be stopped."""
    evacuate: bool = False
    """Its host is dead and does nothing any more: it starts elsewhere, with disks that others reach."""
    spec: VmSpec | None = None
    """As what it goes, where that is another size; None: as it is."""


@dataclass(frozen=True, kw_only=True)
class ResizeVm:
    """A VM that is to become another size."""

    name: str
    tenant: str
    profile: str
    """Name of an offering, vGPU type or MIG profile, or ``gpu:N``."""
    vcpus: int = 0
    """This and the next are 0 where they are as the profile says."""
    memory_mib: int = 0
    restart: bool = False
    """One that runs may be shut down for it, and is started again."""


@dataclass(frozen=True, kw_only=True)
class ResizePlan:
    """What a resize would do; nothing was stored."""

    source: str
    """Host that the VM is on."""
    target: str
    """Host that it would be on: its own where it fits there."""
    gpus: tuple[str, ...]
    """Of its devices then, in their order; one for each."""
    why: str
    """Why there, for people."""
    vcpus: int
    """Of the VM then."""
    memory_mib: int
    """Of its guest then, MiB."""
    restarts: bool
    """It runs, and would be shut down and started."""


@dataclass(frozen=True, kw_only=True)
class MovePlan:
    """What a move would do; nothing was stored."""

    source: str
    """Host that the VM is on."""
    target: str
    """Host that it would be on."""
    gpus: tuple[str, ...]
    """Of its devices there, in their order; one for each."""
    why: str
    """Why there, for people."""
    disk_bytes: int
    """Size of its disk; what is copied of it may be less."""
    copy_low_s: float | None
    """Seconds that copying it takes at least, by copies that were measured; None: none was."""
    copy_high_s: float | None
    """The same at most."""
    live: bool
    """It moves while it runs; then its disk goes along, and the next say how long that takes."""
    live_low_s: float | None = None
    """Seconds that it takes at least, by moves that were measured and what its host says that it has to move; None: no
    move was measured, or its host does not say."""
    live_high_s: float | None = None
    """The same at most."""
    pause_low_s: float | None = None
    """Seconds that its guest stands still for at the end at least."""
    pause_high_s: float | None = None
    """The same at most."""


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What create would do, to the last host action. Nothing was stored; identifiers differ in a real run."""

    host: str
    gpus: tuple[str, ...]
    """Of its devices, in their order; one for each."""
    why: str
    """Why there, for people."""
    actions: tuple[HostAction, ...]
    domain_xml: str
    preempts: tuple[str, ...] = ()
    """``tenant/name`` of the VMs that would be stopped for it."""
    moves: tuple[str, ...] = ()
    """``tenant/name`` of the VMs that would move for it."""
    provision: tuple[str, ...] = ()
    """Roles that would then be run in its guest."""


@dataclass(frozen=True, kw_only=True)
class HostInfo:
    """A host with what was last seen on it. ``snapshot`` is None until the agent answered once."""

    host: Host
    snapshot: HostSnapshot | None
    vms: tuple[str, ...]
    """``tenant/name`` of the VMs that are claimed there."""
    capacity: HostCapacity | None
    """The most that VMs may have there together. None until the agent answered once."""
    claimed_vcpus: int
    """Without those that have CPUs alone."""
    claimed_memory_mib: int
    agent_differs: bool
    """The agent is of another build than the server's."""
    pinned_cpus: tuple[int, ...] = ()
    """That VMs have alone."""
    nic_functions: Mapping[str, str] = field(default_factory=dict)
    """Functions of network cards that VMs have → ids of these."""


@dataclass(frozen=True, kw_only=True)
class HostChange:
    """What an operator sets for a host. None: it stays."""

    vcpu_overcommit: float | Literal["site"] | None = None
    """``site``: as the site's setting says."""
    memory_overcommit: float | Literal["site"] | None = None
    allow_unconfined: bool | None = None
    pinnable_cpus: tuple[int, ...] | None = None
    """Kept for VMs that have theirs alone; none of them: VMs share all."""
    rdma_nics: tuple[str, ...] | None = None
    """PCI addresses of network cards whose virtual functions VMs may have."""
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """By key; None takes one away."""


@dataclass(frozen=True, kw_only=True)
class TypeUse:
    """One vGPU type on one GPU. ``free`` counts what could still be claimed now."""

    name: str
    """What it is called."""
    framebuffer_mib: int
    """GPU memory of one, in MiB."""
    max_instances: int
    """How many fit on one GPU."""
    used: int
    """How much is taken."""
    free: int
    """How many could still be claimed now."""


@dataclass(frozen=True, kw_only=True)
class GpuInfo:
    """A GPU with its claims."""

    host: str
    gpu: GpuSnapshot
    managed: bool
    state: HealthState | None
    """null: it is not ours."""
    cut: str | None
    """How it is cut now (core/vms/claim.py); None: nothing is claimed on it."""
    types: tuple[TypeUse, ...]
    vms: tuple[str, ...]
    """``tenant/name`` of the VMs with a claim on it."""
    vm_names: Mapping[str, str] = field(default_factory=dict)
    """Their ids → the same."""


@dataclass(frozen=True, kw_only=True)
class ProfileFilter:
    """Which profiles a list is to have. All that is given must hold."""

    kind: OfferingKind | None = None
    model: str | None = None
    """A GPU gives it that is of this model, or has this in its model's name where no model is called so."""
    host: str | None = None
    free: bool = False
    """One of it fits now."""
    available: bool = False
    """Some host offers it, and nothing of it is unsupported."""


@dataclass(frozen=True, kw_only=True)
class ProfileInfo:
    """Something ``--profile`` takes. ``free`` counts how many VMs of its usual size fit now, as capacity does."""

    offering: Offering
    hosts: tuple[str, ...]
    """Hosts that offer it; in a list of profiles the first of them."""
    host_count: int
    """How many do."""
    free: int
    framebuffer_mib: int | None
    """Of all its devices together; None: as the GPUs have it."""
    size: VmSize
    """Of its VMs that ask for none."""

    @property
    def available(self) -> bool:
        """Some host offers it, and nothing of it is unsupported."""
        return bool(self.host_count) and not unsupported(self.offering)
