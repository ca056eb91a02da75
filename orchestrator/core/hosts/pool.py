# SPDX-License-Identifier: Apache-2.0
"""A pool: a directory that several hosts mount, where disks and data volumes of VMs may lie.

Its file system is mounted on each host below the agent's directory, under the pool's name. That it is the same
directory, a file in it says that holds the pool's id. Files in a pool carry its name and the beginning of that id in
their own names, so that no host takes another directory of that name for it.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput, NotFound, Reason
from orchestrator.core.hosts.volume_key import MARK
from orchestrator.core.names import is_name, near

PoolKind = Literal["directory-shared"]
PoolState = Literal["new", "ready", "deleting"]
"""``new``: its id is being written into its directory."""

DIRECTORY: Final = "pools"
"""Below the agent's; pools are mounted there."""
NO_POOL: Final = "none"
"""What is said for a pool where a disk is to lie on its host's own disk, whatever its profile or tenant says."""
MAX_NAME: Final = 16
"""Characters: the names of its files have its name in them."""
HOLDER: Final = "pool.holder"
"""Code of the reason that names the machine which may open a disk."""
_KEY: Final = 6
_IN_POOL: Final = re.compile(
    rf"[0-9a-f-]{{36}}\.(?P<pool>[a-z0-9-]{{1,{MAX_NAME}}}\.[0-9a-f]{{{_KEY}}})\.(?:qcow2|raw|ro\.raw)", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """As the database holds it. Sizes in bytes; ``created_at`` in seconds since the epoch, UTC."""

    id: str
    """Stays the same for ever; a file in its directory holds it."""
    name: str
    """What it is called, and what its directory is called on hosts."""
    state: PoolState
    created_at: float
    """When it was declared."""
    kind: PoolKind = "directory-shared"
    """A directory that hosts mount from somewhere else."""
    capacity_bytes: int = 0
    """What is free and what is ours, as a host observed it last; 0: none has yet."""
    free_bytes: int = 0
    """The same of what is free."""
    claimed_bytes: int = 0
    """What disks and volumes there may come to take together."""

    @property
    def on_hosts(self) -> str:
        """What it is called in specifications and names of files: ``name.key``."""
        return on_hosts(self.name, self.id)

    @classmethod
    def from_fields(cls, stored: Any) -> Pool:
        """The inverse of :meth:`fields`."""
        return cls(**stored)

    def fields(self) -> dict[str, object]:
        """As an operation's inputs keep it."""
        return asdict(self)


def on_hosts(name: str, pool_id: str) -> str:
    """What hosts and specifications call the pool."""
    return f"{name}.{pool_id[:_KEY]}"


def short_of(pool: str) -> str:
    """What people call the pool that hosts call so."""
    return pool.partition(".")[0]


def is_the_pool(pool: str, pool_id: str) -> bool:
    """Whether a directory that holds that id is the pool that hosts call so."""
    return pool == on_hosts(short_of(pool), pool_id)


def pool_of(file: str) -> str | None:
    """The pool that a disk's or volume's file lies in, by its name; None: on its host's own disk."""
    match = _IN_POOL.search(file)
    return match["pool"] if match is not None and match.end() == len(file) else None


def disk_file(vm_id: str, pool: str | None, *, encrypted: bool = False) -> str:
    """Name of the file of a VM's disk. None in a pool is encrypted."""
    mark = MARK if encrypted else ""
    return f"{vm_id}{mark}.qcow2" if pool is None else f"{vm_id}.{pool}.qcow2"


def file_path(storage: str, directory: str, file: str) -> str:
    """Where a disk's or volume's file lies. ``storage``: the agent's directory; ``directory``: that of its kind."""
    return f"{home_of(storage, file)}/{directory}/{file}"


def home_of(storage: str, file: str) -> str:
    """The directory that has those of the kinds: the agent's own, or the pool's."""
    pool = pool_of(file)
    return storage if pool is None else f"{storage}/{DIRECTORY}/{short_of(pool)}"


def check_pool_name(text: str) -> str:
    """:raises InvalidInput: ``pool.name_invalid``"""
    if not is_name(text) or len(text) > MAX_NAME:
        raise InvalidInput(
            "pool.name_invalid",
            f"pool name {ascii(text)[:40]} is not allowed",
            hint=f"use 1 to {MAX_NAME} lower-case letters, digits and '-', starting and ending with a letter or digit",
        )
    return text


def held_elsewhere(file: str, holder: str | None, hint: str | None = None) -> Conflict:
    """``pool.held_elsewhere``. ``holder``: machine id of the host that may open it, which a reason has; None: none."""
    machine = "nobody" if holder is None else f"machine {holder}"
    return Conflict(
        "pool.held_elsewhere",
        "the VM's disk in the pool is another host's to open",
        hint=hint,
        details=f"{file}: {machine}",
        reasons=() if holder is None else (Reason(code=HOLDER, message=machine, subjects=(holder,)),),
    )


def unknown_pool(name: str, known: list[str]) -> NotFound:
    """``known``: what pools are called."""
    return NotFound("pool.unknown", f"no pool is called {name[:63]!a}", hint=near(name, known, "vgpuctl pool list"))
