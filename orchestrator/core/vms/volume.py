# SPDX-License-Identifier: Apache-2.0
"""A data volume: a disk of a tenant that outlives the VMs it is attached to. It lies on one host and never moves, or in
a pool, where each host reaches it that has the pool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from orchestrator.core.errors import NotFound
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.hosts.volume_key import MARK, READS
from orchestrator.core.labels import NOTHING_SAID, About
from orchestrator.core.names import near
from orchestrator.core.vms.vm import DATA_FILE, Vm, VmShape, VmSpec, VolumeLimits

VolumeState = Literal["new", "copying", "ready", "deleting", "lost"]
"""``new``: its file is made when it is first attached. ``copying``: it is a copy that is not made yet. ``lost``: its
host was given up; it can only be deleted."""
VolumeEncryption = Literal["none", "luks", "keyless"]
"""``luks``: by QEMU, with a key of its own. ``keyless``: so, and the key was destroyed; it can only be deleted."""

MAX_OF_TENANT = 1000
"""Data volumes of one tenant, whatever its quota."""
MAX_ATTACHED = 20
"""Data volumes of one VM."""
MAX_SNAPSHOTS = 32
"""Of one data volume."""
READ_ONLY: Final = ":ro"
"""Behind the name of a volume that a VM only reads, wherever people name those of a VM."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """As the database holds it. ``created_at`` in seconds since the epoch, UTC."""

    id: str
    """Stays the same for ever."""
    tenant: str
    """Whose it is."""
    name: str
    """What it is called."""
    size_bytes: int
    """In bytes."""
    host: str | None
    """Where it lies, or shall be made; None: where the first VM goes that it is attached to, or in its pool."""
    vm: str | None
    """Id of the VM that has it."""
    state: VolumeState
    created_at: float
    """When it was made."""
    about: About = field(default=NOTHING_SAID, compare=False)
    pool: str | None = None
    """Where it lies, as hosts call it (core/hosts/pool.py); None: on a host's own disk."""

    max_bytes_per_s: int | None = None
    """What its VM may read and write in a second together, in bytes, if its offering says no less; None: any."""
    max_iops: int | None = None
    """The same in requests."""
    snapshot_of: str | None = None
    """Id of the volume that it is a snapshot of: what was on that at one moment, in a file of its own that no VM gets.
    It is called ``volume/snapshot``. None: it is none."""
    encryption: VolumeEncryption = "none"
    """Of its file."""
    read_only_of: str | None = None
    """Id of the volume that its VM reads by it, as others may: a second name of that one's file, and of no size. It is
    called ``id/volume``, and gone once its VM does not have it any more. None: it is a volume of its own."""
    quiesced: str | None = None
    """Of a snapshot, as of one of a VM's disk. None also: no VM ran that had the volume."""

    @property
    def limits(self) -> DiskLimits:
        """What is set of it."""
        return DiskLimits(bytes_per_s=self.max_bytes_per_s or 0, iops=self.max_iops or 0)

    @property
    def full_name(self) -> str:
        """``tenant/name``."""
        return f"{self.tenant}/{self.name}"

    @property
    def on_hosts(self) -> str:
        """What it is called in a VM's specification: ``name.id``, as one of the same name may come after it, and its
        pool where it lies in one."""
        if self.read_only_of is not None:
            return reader_on_hosts(self.name, self.id, self.read_only_of, self.pool)
        return name_on_hosts(self.name, self.id, self.pool, encrypted=self.encrypted)

    @property
    def encrypted(self) -> bool:
        """Whether its file is, whoever has a key of it."""
        return self.encryption != "none"

    @property
    def file(self) -> str:
        """Its file name in the agent's directory of data volumes."""
        return file_of(self.on_hosts)

    @classmethod
    def from_fields(cls, stored: Any) -> Volume:
        """The inverse of :meth:`fields`."""
        return cls(**stored)

    def fields(self) -> dict[str, object]:
        """As an operation's inputs keep it: without what people say of it, and what a copy is still
        to say."""
        fields = asdict(self)
        del fields["about"], fields["quiesced"]
        return fields


def limited(spec: VmSpec, volumes: Iterable[Volume]) -> VmSpec:
    """With the limits of these, as they are now, beside those of the others that it has."""
    own = {known.volume: known for known in spec.volume_limits if known.volume in spec.volumes}
    own |= {volume.on_hosts: VolumeLimits(volume=volume.on_hosts, limits=volume.limits) for volume in volumes}
    return replace(spec, volume_limits=tuple(known for known in own.values() if known.limits != DiskLimits()))


def name_on_hosts(name: str, volume_id: str, pool: str | None, *, encrypted: bool = False) -> str:
    """What hosts call a volume or a snapshot."""
    return ".".join(filter(None, (name.rpartition("/")[2], volume_id, pool))) + (MARK if encrypted else "")


def reader_on_hosts(name: str, reader_id: str, volume_id: str, pool: str | None = None) -> str:
    """What hosts call a volume as a VM has it that only reads it."""
    return name_on_hosts(f"{name.rpartition('/')[2]}.{reader_id}", volume_id, pool) + READS


def is_reader(on_hosts: str) -> bool:
    """Whether what a specification, or a file, is called so is read and never written."""
    return on_hosts.removesuffix(DATA_FILE).endswith(READS)


def reader_found(volume: Volume, on_hosts: str) -> Volume:
    """What a host shows of a VM that the database does not know: the volume, or what the VM reads one by."""
    if not is_reader(on_hosts):
        return volume
    of = on_hosts.removesuffix(READS).split(".")[2]
    return replace(volume, name=f"{volume.id}/{volume.name}", size_bytes=0, read_only_of=of)


def read_by(on_hosts: str) -> str:
    """File name of the volume that is read by what a specification calls so."""
    name, _, volume = on_hosts.removesuffix(READS).split(".", 2)
    return file_of(f"{name}.{volume}")


def file_of(on_hosts: str) -> str:
    """File name of the volume that a specification calls so."""
    return f"{on_hosts}{DATA_FILE}"


def short_of(on_hosts: str) -> str:
    """What its tenant calls the volume that a specification calls so. Names hold no dot."""
    return on_hosts.partition(".")[0]


def id_of(on_hosts: str) -> str:
    """Id of the volume that a specification calls so."""
    return on_hosts.split(".")[1]


def written(vm: Vm) -> tuple[str, ...]:
    """What its specification calls the volumes that it does not only read."""
    return tuple(volume for volume in vm.spec.volumes if not is_reader(volume))


def pools_of(vm: VmShape) -> tuple[str, ...]:
    """That its disk and volumes lie in, by its specification."""
    in_pools = {vm.pool, *(pool_of(file_of(volume)) for volume in vm.volumes)}
    return tuple(sorted(pool for pool in in_pools if pool is not None))


def shared_files(vm: Vm) -> tuple[str, ...]:
    """Files of its that lie in pools: its disk, then data volumes."""
    every = (vm.volume, *map(file_of, vm.spec.volumes))
    return tuple(file for file in every if pool_of(file) is not None)


def attached_names(vm: Vm) -> tuple[str, ...]:
    """What its tenant calls the volumes that the VM has, in order: ``name``, or ``name:ro``."""
    return tuple(short_of(volume) + (READ_ONLY if is_reader(volume) else "") for volume in vm.spec.volumes)


def plain_name(wanted: str) -> str:
    """What the volume is called of which a VM is to have ``name`` or ``name:ro``."""
    return wanted.removesuffix(READ_ONLY)


def unknown_volume(name: str, known: Iterable[str]) -> NotFound:
    """``known``: what volumes of the tenant are called."""
    return NotFound(
        "volume.unknown", f"no volume is called {name[:63]!a}", hint=near(name, known, "vgpuctl volume list")
    )
