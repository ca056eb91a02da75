# SPDX-License-Identifier: Apache-2.0
"""One observation of the whole host. A part that cannot be read becomes a problem of it, not a failure of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.agent.attachments.kind import Kinds
from orchestrator.agent.fabric.fmpm import FabricManager
from orchestrator.agent.fabric.observing import observe_fabric
from orchestrator.agent.images.store import Storage
from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import FoundNetworks, LibvirtNetworks
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.observing_gpus import observe_gpus
from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, run
from orchestrator.agent.sessions import Sessions
from orchestrator.agent.sysfs import machine
from orchestrator.agent.version import agent_version
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.errors import VgpuctlError, WorldError
from orchestrator.core.hosts.domain import MadeAs
from orchestrator.core.hosts.snapshot import NOT_TOLD, DomainSnapshot, HostSnapshot
from orchestrator.core.protocol import PROTOCOL_VERSION

_LIMIT_S = 10.0
_MAX_OUTPUT = 16 * 1024
_VERSION = re.compile(r"version: *([0-9]{1,3}(?:\.[0-9]{1,4}){1,3})\b")


class Dcgm:
    """Which DCGM a host has, as its own ``dcgmi`` says. Asked again when the program is another one."""

    def __init__(self, paths: Paths) -> None:
        self._program = paths.root / "usr/bin/dcgmi"
        self._known: tuple[tuple[int, int], str | None] | None = None

    def version(self) -> str | None:
        """None: the host has none, or it does not say."""
        try:
            about = self._program.stat()
            key = (about.st_mtime_ns, about.st_ino)
            if self._known is None or self._known[0] != key:
                finished = run([str(self._program), "--version"], limit_s=_LIMIT_S, most_bytes=_MAX_OUTPUT)
                match = _VERSION.search(finished.output)
                self._known = (key, None if match is None else match[1])
        except (OSError, ChildHangs, ChildTalksTooMuch):
            return None
        return self._known[1]


T = TypeVar("T")


class _Problems:
    def __init__(self) -> None:
        self.found: list[str] = []

    def read(self, function: Callable[[], T], instead: T) -> T:
        try:
            return function()
        except WorldError as error:
            self.found.append(shown(error))
            return instead


def shown(error: VgpuctlError) -> str:
    """One line for people."""
    return error.message if error.details is None else f"{error.message} ({error.details})"


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Where it looks."""

    paths: Paths
    ledger: Ledger
    kinds: Kinds
    nvml: Nvml
    libvirt: Libvirt
    domains: Domains
    networks: LibvirtNetworks
    storage: Storage
    wanted: RestoreList
    kernel_log: KernelLog
    fabric: FabricManager
    nics: NicFunctions
    dcgm: Dcgm
    sessions: Sessions

    def observe(self) -> HostSnapshot:
        problems = _Problems()
        nvml = self.nvml.read()
        problems.found.extend(nvml.problems)
        hypervisor = problems.read(self.libvirt.hypervisor, None)
        networks = problems.read(self.networks.find, FoundNetworks())
        logged = self.kernel_log.signals()
        gpus = tuple(
            replace(gpu, signals=(*logged.get(gpu.address, ()), *gpu.signals))
            for gpu in observe_gpus(self.paths, self.ledger, self.kinds, nvml)
        )
        about = machine.read(self.paths)
        disk = shutil.disk_usage(self.paths.storage)
        return HostSnapshot(
            machine_id=about.machine_id,
            boot_id=about.boot_id,
            hostname=about.hostname,
            agent_version=agent_version(),
            protocol=PROTOCOL_VERSION,
            kernel=about.kernel,
            os_name=about.os_name,
            libvirt_version=NOT_TOLD if hypervisor is None else hypervisor.libvirt_version,
            qemu_version=NOT_TOLD if hypervisor is None else hypervisor.qemu_version,
            driver_version=nvml.driver_version,
            vcpus=about.vcpus,
            memory_mib=about.memory_mib,
            storage_free_bytes=disk.free,
            storage_total_bytes=disk.total,
            iommu=about.iommu,
            gpus=gpus,
            domains=problems.read(lambda: self.domains.snapshots(problems.found.append), ()),
            volumes=self.storage.volumes(),
            seeds=self.storage.seeds(),
            data=self.storage.data.snapshots(),
            images=self.storage.images(),
            networks=networks.active,
            bridges=networks.bridges,
            problems=(*problems.found, *self.wanted.problems()),
            epoch=self.ledger.epoch(),
            ledger_lost=self.ledger.is_lost(),
            confinement=None if hypervisor is None else hypervisor.confinement,
            fabric=observe_fabric(self.paths, self.ledger, self.fabric, gpus),
            nodes=machine.read_numa_nodes(self.paths),
            features=machine.read_features(self.paths),
            nics=self.nics.observe(),
            dcgm_version=self.dcgm.version(),
            sessions_full=self.sessions.full(),
            restoring=self.wanted.is_restoring(),
        )

    def domain(self, vm: str) -> DomainSnapshot | None:
        """One domain; of one that is ours with what it was made as."""
        found, described = self.domains.find(vm), self.wanted.described(vm)
        if found is None or found.owner != vm or described is None:
            return found
        domain, policy = described
        image, size = self.storage.image_beneath(vm, domain.volume), self.storage.disk_bytes(domain.volume)
        made_as = MadeAs(domain=domain, image=image or "", disk_bytes=size, boot_policy=policy)
        return replace(found, made_as=made_as)
