# SPDX-License-Identifier: Apache-2.0
"""Disks and volumes in pools, as the ledger of a host that reaches them has them: those of the VMs that are on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.agent.images import files
from orchestrator.agent.images.pools import MountedPools
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs.open_files import open_below
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.actions.pools import LeaveDisks, ShareDisks
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.pool import file_path, pool_of
from orchestrator.core.hosts.snapshot import FileSnapshot, PoolSnapshot
from orchestrator.core.vms.vm import DATA_FILE


def check_closed(paths: Paths, path: Path, kind: str) -> None:
    """:raises Conflict: ``volume.in_use``, ``seed.in_use``: something here has it open, or nobody can tell"""
    opened = open_below(paths, str(path))
    if opened is None or str(path) in opened:
        raise Conflict(f"{kind}.in_use", f"the VM's {kind} is in use", hint="stop the VM first", details=str(path))


@dataclass(frozen=True)
class PoolDisks:
    paths: Paths
    ledger: Ledger
    pools: MountedPools

    def share(self, action: ShareDisks) -> ActionResult:
        """:raises NotFound: ``volume.missing``; :raises Conflict: ``pool.open_elsewhere``, ``host.owned_by_other``"""
        changed = False
        for file in action.files:
            key, path = _key_of(file), self._path(file)
            if not self.pools.asked(pool_of(file) or "", partial(_is_disk, path)):
                raise NotFound("volume.missing", "the disk is not in its pool", hint="look at the pool", details=file)
            if self._owner(key) != action.vm:
                self.ledger.claim(key, action.vm)
                changed = True
            if action.taken and self.pools.hold(file, path):
                changed = True
        return ActionResult(changed=changed)

    def leave(self, action: LeaveDisks) -> ActionResult:
        """Gone already is fine. :raises Conflict: ``volume.in_use``: something on this host has one open"""
        changed = False
        for file in action.files or self._all_of(action.vm):
            key = _key_of(file)
            if self._owner(key) == action.vm:
                check_closed(self.paths, self._path(file), "volume")
                self.ledger.release(key)
                changed = True
        return ActionResult(changed=changed)

    def check_held(self, paths: Iterable[str]) -> None:
        """Of files that a VM is to start with: what is in a pool is this host's to open.

        :raises Conflict: ``pool.held_elsewhere``"""
        for name in (Path(path).name for path in paths):
            if pool_of(name) is not None:
                self.pools.check_held(name)

    def observe(self) -> tuple[tuple[PoolSnapshot, ...], tuple[FileSnapshot, ...]]:
        """Pools that are mounted here, and the disks in them of VMs of this host."""
        owned = self.ledger.owned("volume:")
        return self.pools.observe({file: owner.vm for file, owner in owned.items() if pool_of(file) is not None})

    def _all_of(self, vm: str) -> list[str]:
        kinds = ("volume:", "attached:")
        owned = (pair for kind in kinds for pair in self.ledger.owned(kind).items())
        return [file for file, owner in owned if owner.vm == vm and pool_of(file) is not None]

    def _path(self, file: str) -> Path:
        directory = "data" if file.endswith(DATA_FILE) else "volumes"
        return Path(file_path(str(self.paths.storage), directory, file))

    def _owner(self, key: str) -> str | None:
        owner = self.ledger.owner(key)
        return None if owner is None else owner.vm


def _is_disk(path: Path, _directory: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _key_of(file: str) -> str:
    """What a file of a pool is in the ledger. :raises InvalidInput: ``volume.file_invalid``"""
    if pool_of(files.check_file_name(file)) is None:
        raise InvalidInput("volume.file_invalid", f"{file[:80]} is no file of a pool", hint="UUID.POOL.KEY.qcow2")
    return f"attached:{file}" if file.endswith(DATA_FILE) else f"volume:{file}"
