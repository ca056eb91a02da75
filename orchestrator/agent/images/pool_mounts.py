# SPDX-License-Identifier: Apache-2.0
"""What is mounted where pools are: read of /proc, no file system is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import reading
from orchestrator.core.hosts.pool import MAX_NAME
from orchestrator.core.names import is_name

_LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems of one host, whose locks its own NFS server sees too."""
_CEPH: Final = frozenset({"ceph", "fuse.ceph", "fuse.ceph-fuse"})


@dataclass(frozen=True)
class Mount:
    """What is mounted under a name."""

    name: str
    directory: Path
    problem: str | None = None
    """Why locks there say nothing: who has a disk open is asked by them (pools.py)."""


def mounts(paths: Paths) -> Iterator[Mount]:
    """Directories below ours that something is mounted on, by name. Nothing there is opened."""
    for point, fields in sorted(_points(paths).items()):
        path = Path(point)
        if path.parent == paths.pools and is_name(path.name) and len(path.name) <= MAX_NAME:
            yield Mount(path.name, path, _no_locks(fields))


def is_mounted(paths: Paths, directory: Path) -> bool:
    """Whether something is mounted exactly there."""
    return str(directory) in _points(paths)


def _points(paths: Paths) -> dict[str, list[str]]:
    """Mount point → the rest of its line; of two at one point the later one, which is seen."""
    lines = [line.split() for line in (reading.text(paths.proc / "self/mountinfo") or "").splitlines()]
    return {_unescaped(fields[4]): fields[5:] for fields in lines if len(fields) > 4}


def _no_locks(fields: list[str]) -> str | None:
    """Why a mount's locks are not seen by other hosts. ``fields``: of mountinfo, from its options on."""
    kind, _, options = (*fields[fields.index("-") + 1 :], "", "", "")[:3] if "-" in fields else ("", "", "")
    if not kind.startswith("nfs"):
        is_seen = kind in _LOCAL or kind in _CEPH
        return None if is_seen else f"whether other hosts see locks on a file system of kind {kind} is not known"
    values = dict(option.partition("=")[::2] for option in options.split(","))
    if values.get("vers", "4")[0] < "4":
        return f"it is mounted by NFS {values['vers']}: its locks are another service's, which may be off"
    if "nolock" in values or values.get("local_lock", "none") != "none":
        return "it is mounted with locks that this host alone sees (nolock, local_lock)"
    return None


def _unescaped(point: str) -> str:
    """A mount point as /proc/self/mountinfo writes it: blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point)
