# SPDX-License-Identifier: Apache-2.0
"""A backup of a VM's disk and of the data volumes that it writes, in a repository of restic, and the target that holds
it: a directory that hosts mount at ``backups/NAME`` of the agent's, or a bucket that is reached by S3. A backup belongs
to its VM's tenant, and outlives the VM."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Final

from orchestrator.core.vms.boot_check import BootOutcome
from orchestrator.core.vms.disk_snapshot import TakenOf
from orchestrator.core.vms.volume import name_on_hosts

DIRECTORY: Final = "backups"
"""Targets are mounted below it, in the agent's directory."""
MAX_OF_TENANT: Final = 10_000
"""Backups that no policy removes, in all targets."""
MIN_BYTES_PER_S: Final = 1024**2
MAX_BYTES_PER_S: Final = 1024**4
REPOSITORY: Final = re.compile("[0-9a-f-]{36}", re.ASCII)
"""Name of one in its target: the VM's id."""
SHORTEST_ID: Final = 6
"""Digits of an id by which a backup may be called."""


@dataclass(frozen=True, kw_only=True)
class BackupTarget:
    """As the database holds it, beside the secret that passwords of its repositories are derived from."""

    name: str
    """What it is called, and its directory on hosts."""
    created_at: float
    """Seconds since the epoch, UTC."""
    max_bytes_per_s: int = 0
    """So much each backup that is made writes there in a second; 0: as much as goes."""
    s3: str = ""
    """The bucket, as :class:`~orchestrator.core.bucket.Bucket` has it; empty: a directory."""
    region: str = ""
    """Of the bucket; empty: its storage has none, or us-east-1."""
    ca: str = ""
    """Certificates in PEM that its server's is signed by; empty: those that hosts trust."""


@dataclass(frozen=True, kw_only=True)
class BackedUpVolume:
    """A data volume that the VM wrote when it was backed up."""

    id: str
    """Of the volume, which may be gone."""
    name: str
    """What it was called."""
    size_bytes: int
    """What its guest saw of it."""
    left_out: str = ""
    """Why the backup does not hold it; empty: it does."""

    @property
    def part(self) -> str:
        """What the repository calls it."""
        return name_on_hosts(self.name, self.id, None)


@dataclass(frozen=True, kw_only=True)
class Backup:
    """As the database holds it."""

    id: str
    """Stays the same for ever; the tag of its snapshot in the repository."""
    target: str
    """Name of the target that holds it."""
    tenant: str
    """Whose it is."""
    vm: str
    """Id of the VM, which may be gone. All backups of a VM in a target are one repository."""
    vm_name: str
    """What the VM was called."""
    host: str
    """Which host made it."""
    size_bytes: int
    """Of the disk."""
    created_at: float
    """When it was asked for: seconds since the epoch, UTC."""
    taken_of: TakenOf | None = None
    """What the VM was when it was taken. None: it is being made."""
    quiesced: str | None = None
    """As of the snapshot that it was made of. None also: it is being made, or was made known."""
    added_bytes: int | None = None
    """By how much its repository grew. None: it is being made, or that was not told."""
    image: str | None = None
    """Name of the base image that the VM was on. None: that is not known of it."""
    policy: str | None = None
    """Name of its tenant's policy that made it. None: somebody did, or that is gone."""
    verified_at: float | None = None
    """When it was last found whole. None: it was never verified."""
    booted_at: float | None = None
    """When a copy of it was last booted to see whether it does. None: it never was."""
    boot_outcome: BootOutcome | None = None
    """What came of that."""
    boot_line: str | None = None
    """The last line that its serial console showed then; empty: it showed none."""
    unremoved_at: float | None = None
    """When its policy last failed to remove it. None: it did not."""
    volumes: tuple[BackedUpVolume, ...] = ()
    """Data volumes of the same moment as the disk."""

    @property
    def stored_volumes(self) -> tuple[BackedUpVolume, ...]:
        """Those that it holds."""
        return tuple(volume for volume in self.volumes if not volume.left_out)

    @property
    def full_name(self) -> str:
        """What it is called among those of all tenants."""
        return f"{self.tenant}/{self.vm_name}@{self.id[:8]}"


def repository_password(secret: str, vm: str) -> str:
    """Of one VM's repository: a host that knows it opens no other VM's."""
    return hmac.new(secret.encode(), vm.encode(), "sha256").hexdigest()
