# SPDX-License-Identifier: Apache-2.0
"""VMs that come from another host while they run, or leave for one: sockets, connections, and what is let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent import move_channel
from orchestrator.agent.libvirt import migration
from orchestrator.agent.libvirt.arriving import differences
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domain_devices import DomainParts, parts_of, read_domain_xml
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.migration import LIBVIRT, MoveProgress, MoveSockets
from orchestrator.agent.libvirt.migration_calls import MigrationCalls
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveKey
from orchestrator.core.errors import Conflict, Denied, Fatal, Unknown, VgpuctlError

_SHOWN = 10
"""Differences."""
_DAEMONS = ("virtqemud-sock", "libvirt-sock")


@dataclass(frozen=True)
class OtherHost:
    """That a VM leaves for. ``own``: the key here; ``other``: the other agent's certificate (PEM); ``ends``: addresses
    and ports where it may listen; ``storage``: its directory."""

    own: MoveKey
    other: str
    ends: Sequence[tuple[str, int]]
    storage: str


@dataclass(frozen=True)
class LiveMoves:
    """Whoever calls has the VM's turn."""

    libvirt: Libvirt
    domains: Domains
    wanted: RestoreList
    storage: Path
    check: Callable[[str, DomainParts], None]
    """Refuses what a VM that starts may not take."""
    reserve: Callable[[str], None]
    """Takes an address for each card of a definition (XML), as before a start."""
    sockets: Path = migration.SOCKETS

    @contextmanager
    def coming(self, vm: str, key: MoveKey, other: str) -> Iterator[move_channel.Coming]:
        """Where it may come, defined and not running. ``other``: the other agent's certificate (PEM).

        :raises Conflict: ``vm.foreign_domain``, ``vm.running``; :raises Fatal: ``move.name_too_long``
        :raises Retryable: ``move.no_port``"""
        if self.domains.is_active(vm):
            raise Conflict("vm.running", "the VM is running", hint="stop it first")
        own = self.domains.definition(vm)
        name = read_domain_xml(own).name
        sockets = MoveSockets(self.sockets, name)
        self.reserve(own)

        def check(xml: str) -> None:
            if differing := differences(own, xml):
                raise Denied(
                    "move.definition_differs", "the VM that comes is not what was defined for it here",
                    hint="look at the host that it comes from: is it still only vgpuctl's?",
                    details=", ".join(differing[:_SHOWN]),
                )  # fmt: skip
            self.check(vm, parts_of(xml))

        texts = {**sockets.uris(), **migration.OWN_DISK, "destination_name": name}
        paths = {LIBVIRT: self._daemon(), **sockets.paths()}
        inspected = {LIBVIRT: lambda: MigrationCalls(texts, check).passed}
        with move_channel.coming(key, other, paths, inspected) as here:
            yield here

    def leave(
        self, move: LiveMove, to: OtherHost, progress: Callable[[MoveProgress], bool], gone: Callable[[MovedVm], None]
    ) -> None:
        """Returns when nothing is done to it here any more. ``progress``, ``gone``: see migrate.

        :raises Retryable: ``move.unreachable``; :raises VgpuctlError: see libvirt/migration.py"""
        sockets = MoveSockets(self.sockets, self.domains.name_of(move.vm))

        def left(moved: MovedVm) -> None:
            """Noted first: libvirt may die before it has removed the definition, and its controller before it hears."""
            with suppress(Fatal):  # a full disk; its controller is told all the same
                self.wanted.gone(move.vm)
            gone(moved)

        def arriving(xml: str) -> tuple[str, tuple[str, ...] | None]:
            own = str(self.storage)
            text = migration.arriving_text(xml, own=own, other=to.storage, devices=move.devices)
            return text, migration.copied_disks(xml, own)

        with move_channel.leaving(to.own, to.other, to.ends, sockets.twins(), self.sockets.stat().st_uid):
            self.wanted.leaves(move.vm)
            try:
                migration.migrate(self.libvirt, move, sockets=sockets, arriving=arriving, progress=progress, gone=left)
            except VgpuctlError as error:
                if not isinstance(error, Unknown):  # it is known to be here
                    self.wanted.stays(move.vm)
                raise

    def _daemon(self) -> Path:
        """libvirt's socket: of the daemon for QEMU where each has one."""
        directory = self.sockets.parent
        return next((directory / name for name in _DAEMONS if (directory / name).exists()), directory / _DAEMONS[-1])
