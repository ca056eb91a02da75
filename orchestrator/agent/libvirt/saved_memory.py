# SPDX-License-Identifier: Apache-2.0
"""The memory of suspended VMs, with the state of their devices, in files of ours beside their disks.

libvirt writes and reads the file; its own ``managedSave`` would put it on the host's root disk, where nobody has
claimed room for it, and start from it whatever became of the disks meanwhile. The ledger has the file as a volume of
the VM, and how its disks were when it was written: memory over a disk that was written to since would destroy it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import libvirt

from orchestrator.agent.images import files
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domain_devices import parts_of, read_domain_xml
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.migration import arriving_text
from orchestrator.agent.pinned_cpus import PinnedCpus
from orchestrator.core.actions.host_actions import ActionResult, StartDomain
from orchestrator.core.actions.suspension import SuspendDomain
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown
from orchestrator.core.vms.vm import memory_file

_START_S: Final = 300.0
_SAVING_MS: Final = 2_000_000
"""The most that QEMU takes."""
_USUAL_MS: Final = 300
_PARTIAL: Final = b"LibvirtQemudPart"
_BEING_SAVED: Final = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_SAVE)


@dataclass(frozen=True)
class SavedMemory:
    """``directory``: the agent's, of all VMs' files."""

    libvirt: Libvirt
    domains: Domains
    ledger: Ledger
    directory: Path

    def save(self, action: SuspendDomain) -> ActionResult:
        """Of one that runs; done already is fine.

        :raises Conflict: ``vm.not_running``; :raises Fatal: ``vm.suspend_failed``, ``host.disk_full``
        :raises Unknown: ``vm.suspend_unfinished``: an earlier attempt still writes it"""
        vm, file = action.vm, self._file(action.vm)
        if not self.domains.is_active(vm):
            if not self.is_kept(vm):
                raise Conflict("vm.not_running", "the VM does not run", hint="start it first", details=vm)
            self._written(vm)
            return ActionResult(changed=False)
        self.domains.check_ours(vm)
        state = self.libvirt.call(lambda connection: connection.lookupByUUIDString(vm).state())
        if tuple(state) == _BEING_SAVED:
            raise Unknown("vm.suspend_unfinished", "libvirt still writes its memory", hint="wait until it has ended")
        files.check_free(self._volumes, action.max_bytes, "the VM's memory")
        self.ledger.claim(_key(vm), vm)
        files.remove(file)
        try:
            self.libvirt.call(
                lambda connection: _save(connection.lookupByUUIDString(vm), file),
                code="vm.suspend_failed",
                message="the VM was not suspended",
                hint="the details hold what libvirt said",
                limit_s=action.limit_s,
            )
        except (Fatal, Retryable):
            if self.domains.is_active(vm):  # it goes on
                self.discard(vm)
            raise
        self._written(vm)
        return ActionResult(changed=True)

    def is_kept(self, vm: str) -> bool:
        """Whether the VM's memory is here, whole."""
        return self._is_owner(vm) and _is_whole(self._file(vm))

    def resume(self, action: StartDomain, check: Callable[[str], None]) -> ActionResult:
        """Start it from its file, on the devices that its definition has now. ``check``: refuses what the definition
        (XML) takes and may not.

        :raises Conflict: ``vm.saved_memory_stale``; :raises Fatal: ``vm.resume_failed``: the file stays"""
        vm, file = action.vm, self._file(action.vm)
        saved, owner = self._saved(vm), self.ledger.owner(_key(vm))
        if owner is None or owner.detail != self._disks(saved):
            raise Conflict(
                "vm.saved_memory_stale",
                "the VM's disks were written to after it was suspended, and its memory would destroy them",
                hint="'vgpuctl vm discard-suspended NAME' gives its memory up; it starts from its disk then",
                details=vm,
            )
        devices, own = read_domain_xml(self.domains.definition(vm)).devices, str(self.directory)
        other = devices != read_domain_xml(saved).devices
        xml = arriving_text(saved, own=own, other=own, devices=devices) if other else saved
        check(xml)
        cpus = PinnedCpus(self.ledger)
        cpus.take(vm, read_domain_xml(xml).affinity)
        try:
            self.libvirt.call(
                lambda connection: connection.restoreFlags(str(file), xml if other else None, 0),
                code="vm.resume_failed",
                message="the VM did not resume; its memory is kept",
                hint="the details hold what libvirt said; 'vgpuctl vm discard-suspended NAME' gives its memory up",
                limit_s=getattr(action, "limit_s", _START_S),
            )
        except (Fatal, Retryable):
            cpus.give_back(vm)
            raise
        self.discard(vm)
        return ActionResult(changed=True, message="it goes on from its memory")

    def discard(self, vm: str) -> bool:
        """Whether there was anything of the VM's, whole or not."""
        if not self._is_owner(vm):
            return False
        changed = files.remove(self._file(vm))
        self.ledger.release(_key(vm))
        return changed

    @property
    def _volumes(self) -> Path:
        return self.directory / "volumes"

    def _file(self, vm: str) -> Path:
        return self._volumes / files.check_file_name(memory_file(vm))

    def _is_owner(self, vm: str) -> bool:
        owner = self.ledger.owner(_key(vm))
        return owner is not None and owner.vm == vm

    def _saved(self, vm: str) -> str:
        """The definition (XML) in its file."""
        file = str(self._file(vm))
        return str(self.libvirt.call(lambda c: c.saveImageGetXMLDesc(file, libvirt.VIR_DOMAIN_XML_SECURE)))

    def _written(self, vm: str) -> None:
        """Its disks stay as they are now."""
        owner = self.ledger.owner(_key(vm))
        if owner is None or not owner.detail:  # an earlier attempt may have got no further
            self.ledger.claim(_key(vm), vm, detail=self._disks(self._saved(vm)))
        PinnedCpus(self.ledger).give_back(vm)

    def _disks(self, xml: str) -> str:
        """Changes when anything writes to one of the files of a definition."""
        lines = []
        for path in sorted(parts_of(xml).files):
            try:
                status = Path(path).stat()
            except OSError:
                lines.append(f"{path} gone")
            else:
                lines.append(f"{path} {status.st_size} {status.st_mtime_ns}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _save(domain: Any, file: Path) -> None:
    """QEMU asks the devices again and again until what is left fits into its longest pause, though the guest stands
    still all the while; of a vGPU nothing ever may. Who runs on gets the usual one again."""
    with suppress(libvirt.libvirtError):  # as one of libvirt's drivers that cannot set it
        domain.migrateSetMaxDowntime(_SAVING_MS)
    try:
        domain.saveFlags(str(file), None, 0)
    except libvirt.libvirtError:
        with suppress(libvirt.libvirtError):
            domain.migrateSetMaxDowntime(_USUAL_MS)
        raise


def _is_whole(file: Path) -> bool:
    """libvirt's first words are others until it has written all."""
    try:
        with file.open("rb") as saved:
            begins = saved.read(len(_PARTIAL))
    except FileNotFoundError:
        return False
    return len(begins) == len(_PARTIAL) and begins != _PARTIAL


def _key(vm: str) -> str:
    return f"volume:{memory_file(vm)}"
