# SPDX-License-Identifier: Apache-2.0
"""A tenant's virtual machine: what was asked for and what state it is in."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeVar

from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.hosts.domain import BootPolicy, DiskLimits, DomainDescription, Firmware, MadeAs
from orchestrator.core.hosts.features import SWITCHES
from orchestrator.core.hosts.nic import NicKind, NicPlace
from orchestrator.core.hosts.pool import disk_file, pool_of
from orchestrator.core.hosts.volume_key import is_encrypted
from orchestrator.core.labels import Labels
from orchestrator.core.overlay import Port
from orchestrator.core.units import GIB, MIB, parse_size
from orchestrator.core.vms.disk_snapshot import DiskSnapshot, snapshot_file
from orchestrator.core.vms.priority import Priority

VmState = Literal[
    "creating",
    "adopting",
    "running",
    "stopped",
    "starting",
    "stopping",
    "moving",
    "deleting",
    "failed",
    "stuck",
    "lost",
]
"""What the database says. ``moving``: it goes to another host, running or stopped.
``failed``: its operation was undone and nothing is left on the host.
``lost``: its host was given up; it can only be deleted."""

DeallocationReason = Literal["lease_over", "preempted"]
"""Why a stopped VM has no place on a GPU any more; its disk is still there."""

WantedState = Literal["running", "stopped", "absent"]
"""What is wanted of a VM: what was asked for last, whatever its host shows. ``absent``: it is being deleted."""

MIN_MEMORY_MIB, MAX_MEMORY_MIB = 64, 16 * 1024 * 1024
MIN_DISK_BYTES, MAX_DISK_BYTES = 16 * 1024**2, 64 * 1024**4
MAX_VCPUS = 1024
MAX_USER_DATA_BYTES = 64 * 1024
DEFAULT_VCPUS, DEFAULT_MEMORY_MIB, DEFAULT_DISK_BYTES = 2, 4096, 20 * GIB
"""Of a VM whose size nobody gave: API, command line and files alike."""


def disk_bytes(text: str) -> int:
    """``20GiB`` in bytes, within what a disk may have."""
    return parse_size(text, field="disk", at_least=MIN_DISK_BYTES, at_most=MAX_DISK_BYTES)


def memory_mib(text: str) -> int:
    """``4GiB`` in MiB, within what a VM may have."""
    size = parse_size(text, field="memory", at_least=MIN_MEMORY_MIB * MIB, at_most=MAX_MEMORY_MIB * MIB)
    return size // MIB


DATA_FILE: Final = ".raw"
"""Ends the names of data volumes' files."""
LEFT_OPEN: Final[dict[str, int | None]] = {"vcpus": 0, "memory_mib": 0, "disk_bytes": 0} | dict.fromkeys(SWITCHES)
"""What a request or a file may leave to the profile, and what it is then."""


def memory_file(vm_id: str) -> str:
    """What the agent keeps a suspended VM's memory in."""
    return f"{vm_id}.memory"


@dataclass(frozen=True, kw_only=True)
class VolumeLimits:
    """What is set of a data volume that a VM has."""

    volume: str
    """``name.id``, as the VM's specification has it."""
    limits: DiskLimits


_ShapeT = TypeVar("_ShapeT", bound="VmShape")


@dataclass(frozen=True, kw_only=True)
class VmShape:
    """What a VM is, wherever it is written down: in a request, in the database, in a file."""

    name: str
    """What it is called."""
    tenant: str
    """Whose it is."""
    profile: str
    """Name of an offering, vGPU type or MIG profile, or ``gpu:N``."""
    image: str
    """Name of a registered base image; empty for an adopted VM."""
    vcpus: int
    """This and the next two are 0 where a request or a file leaves them to the profile (core/offerings/offering.py)."""
    memory_mib: int
    """Memory, in MiB."""
    disk_bytes: int
    """Size of its disk, in bytes."""
    network: str
    """Of one of our networks: what its tenant calls it in a request and a file, its name on hosts in a specification
    (core/vms/network.py); empty for an adopted VM, and of one without network cards."""
    more_networks: tuple[str, ...] = ()
    """Of its further network cards, in their order; called as the first one."""
    volumes: tuple[str, ...] = ()
    """Data volumes that it has, in order: what its tenant calls them in a request and a file, ``name.id`` in a
    specification (core/vms/volume.py)."""
    pool: str | None = None
    """Where its disk lies: what people call the pool in a request and a file, ``name.key`` in a specification
    (core/hosts/pool.py); None: on its host's own disk."""
    encrypted: bool = False
    """Whether its disk is encrypted on its host, with a key of its own that the host does not keep."""
    nic: NicKind | None = None
    """A virtual function of a network card near its GPU; None: what its profile says."""
    tpm: bool | None = None
    """Whether it has a TPM 2.0 of its own; None: what its profile says."""
    ssh_keys: tuple[str, ...] = ()
    """OpenSSH public key lines for its first login."""
    host: str | None = None
    """Only this host will do."""
    gpu: str | None = None
    """Only this GPU will do: its PCI address."""
    boot_policy: BootPolicy = "local"
    """Who starts it again after a reboot of its host."""
    priority: Priority = "normal"
    """Who is stopped for whom."""

    @property
    def networks(self) -> tuple[str, ...]:
        """One for each network card."""
        return (self.network, *self.more_networks) if self.network else ()

    @property
    def host_disk_bytes(self) -> int:
        """What of its disk is on its host's own one."""
        return 0 if self.pool is not None else self.disk_bytes

    def filled(self: _ShapeT, *sources: object) -> _ShapeT:
        """What it leaves open is as the first of ``sources`` says that has such a field."""
        left = [name for name, is_open in LEFT_OPEN.items() if getattr(self, name) == is_open]
        given = {name: next(getattr(source, name) for source in sources if hasattr(source, name)) for name in left}
        return replace(self, **given)

    def shape(self) -> dict[str, Any]:
        """The members of the shape alone, for another thing of the same shape."""
        return {member.name: getattr(self, member.name) for member in fields(VmShape)}


@dataclass(frozen=True, kw_only=True)
class VmSpec(VmShape):
    """What the user asked for; equal specs mean the same VM (a create with an equal spec is a repeat)."""

    user_data: str | None = None
    """Id of the stored user data; the text itself is never part of a spec, an operation or a log."""
    start: bool = True
    label: str | None = None
    """Which file of wanted things (core/manifest.py) made it; says nothing about what the VM is."""
    from_snapshot: str | None = field(default=None, compare=False)
    """As it was asked for: ``VM/SNAPSHOT``, whose copy its disk was made as; None: on its image alone."""
    from_backup: str | None = field(default=None, compare=False)
    """Id of the backup that its disk was made of; None: of none."""
    labels: Labels = field(default=(), compare=False)
    """Say nothing about what the VM is."""
    protected: bool = field(default=False, compare=False)
    """Whether it is refused to delete it until this is taken back."""
    disk_limits: DiskLimits | None = field(default=None, compare=False)
    """Of its disk and of each data volume, as its profile said when it got it; None: none."""
    volume_limits: tuple[VolumeLimits, ...] = field(default=(), compare=False)
    """Of those of its data volumes that have any (core/vms/volume.py); of others it says nothing."""
    adopted: str | None = None
    """Name of the libvirt domain that it was before it was adopted. Its definition and its disks are not ours:
    we never write or delete them. None: we made it."""

    @classmethod
    def of_made(cls, made: MadeAs, *, tenant: str, name: str, image: str) -> VmSpec:
        """Of a VM that a host's agent remembers; the other way round than :attr:`Vm.domain`."""
        was = made.domain
        return cls(
            name=name,
            tenant=tenant,
            profile=was.profile,
            image=image,
            vcpus=was.vcpus,
            memory_mib=was.memory_mib,
            disk_bytes=made.disk_bytes,
            network=was.network,
            more_networks=was.more_networks,
            volumes=tuple(file_name.removesuffix(DATA_FILE) for file_name in was.data),
            pool=pool_of(was.volume),
            encrypted=is_encrypted(was.volume),
            boot_policy=made.boot_policy,
            disk_limits=was.disk_limits,
            volume_limits=tuple(
                VolumeLimits(volume=file_name.removesuffix(DATA_FILE), limits=limits)
                for file_name, limits in zip(was.data, was.data_limits, strict=False)
                if limits != DiskLimits()
            ),
            **{switch: getattr(was, switch) for switch in SWITCHES},
        )


@dataclass(frozen=True, kw_only=True)
class Vm:
    """A VM as the database holds it. Times are seconds since the epoch, UTC."""

    id: str
    """UUID; also the libvirt domain's UUID and what the host's ledger calls the owner."""
    spec: VmSpec
    state: VmState
    """Where it stands."""
    host: str
    """Name of the host its claim is on."""
    devices: tuple[Device, ...]
    """In the order of its claim's; of one without a claim, what it had last."""
    addresses: tuple[str, ...]
    operation: str | None
    """Id of the operation that works on it now or did last."""
    created_at: float
    """When it was made."""
    wanted: WantedState = "running"
    """Written with the operation that is to bring it about; put back when that is undone."""
    lease_end: float | None = None
    """When it gives its place back; None: never."""
    deallocated: DeallocationReason | None = None
    """None: it has its claim. Otherwise starting it claims a place anew, on the host where its disk is."""
    cpus: CpuPlace | None = None
    """None: any. Of one without a claim, what it had last."""
    firmware: Firmware = "bios"
    """Of its first start: what is on its disk boots by that."""
    nic: NicPlace | None = None
    """The function of a network card that it has; of one without a claim, what it had last."""
    ports: tuple[Port, ...] = ()
    """Of its cards those on networks of kind ovn."""
    suspended_bytes: int | None = None
    """What its host's disk has room for of its memory and its devices' state, which are there, or will be. None: it is
    not suspended, and starts afresh."""
    snapshots: tuple[DiskSnapshot, ...] = ()
    """Of its disk, oldest first."""

    @property
    def domain_name(self) -> str:
        """Name of the libvirt domain. Names hold no dot, so two tenants never collide on a host."""
        return self.spec.adopted or f"{self.spec.tenant}.{self.spec.name}"

    @property
    def floating_vcpus(self) -> int:
        """Those that share CPUs with other VMs."""
        return 0 if self.cpus is not None and self.cpus.pinned else self.spec.vcpus

    @property
    def ordinary_mib(self) -> int:
        """Of its memory what is of ordinary pages."""
        return 0 if self.cpus is not None and self.cpus.page_kib else self.spec.memory_mib

    @property
    def node_memory(self) -> tuple[tuple[int, int], ...]:
        """(NUMA node, MiB) that must come from there: of huge pages, or of who insists on the node."""
        if self.cpus is None or self.cpus.memory != "strict":
            return ()
        if self.cpus.page_kib:
            return tuple(zip(self.cpus.nodes, self.cpus.page_mib, strict=True))
        return ((self.cpus.nodes[0], self.spec.memory_mib),)

    @property
    def full_name(self) -> str:
        """``tenant/name``."""
        return f"{self.spec.tenant}/{self.spec.name}"

    def has_place_on(self, address: str) -> bool:
        """Whether it has one on the GPU, or on the virtual function, of that PCI address, running or not."""
        return self.deallocated is None and any(address in {device.gpu, device.parent} for device in self.devices)

    @property
    def snapshot_bytes(self) -> int:
        """What its host's disk has room for of its snapshots."""
        return sum(snapshot.size_bytes for snapshot in self.snapshots)

    @property
    def volume(self) -> str:
        """File name of its disk in the agent's volume directory, or its pool's."""
        return disk_file(self.id, self.spec.pool, encrypted=self.spec.encrypted)

    @property
    def memory_file(self) -> str:
        """File name, in the same directory, of its memory and its devices' state while it is suspended."""
        return memory_file(self.id)

    @property
    def seed(self) -> str:
        """File name of its NoCloud seed in the agent's seed directory."""
        return f"{self.id}.iso"

    @property
    def _data_limits(self) -> tuple[DiskLimits, ...]:
        own = {limited.volume: limited.limits for limited in self.spec.volume_limits}
        if own.keys().isdisjoint(self.spec.volumes):
            return ()
        return tuple(own.get(volume, DiskLimits()) for volume in self.spec.volumes)

    @property
    def domain(self) -> DomainDescription:
        """What its host defines."""
        return DomainDescription(
            name=self.domain_name,
            tenant=self.spec.tenant,
            profile=self.spec.profile,
            vcpus=self.spec.vcpus,
            memory_mib=self.spec.memory_mib,
            volume=self.volume,
            seed=self.seed,
            network=self.spec.network,
            more_networks=self.spec.more_networks,
            devices=self.devices,
            data=tuple(f"{volume}{DATA_FILE}" for volume in self.spec.volumes),
            cpus=self.cpus,
            firmware=self.firmware,
            nic=None if self.nic is None else self.nic.function,
            ports=self.ports,
            disk_limits=self.spec.disk_limits,
            data_limits=self._data_limits,
            **{switch: bool(getattr(self.spec, switch)) for switch in SWITCHES},
        )


def snapshot_files(vm: Vm) -> tuple[str, ...]:
    """Names of the files of its snapshots, beside its disk."""
    return tuple(snapshot_file(vm.id, snapshot.id) for snapshot in vm.snapshots)
