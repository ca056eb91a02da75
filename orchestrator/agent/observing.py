# SPDX-License-Identifier: Apache-2.0
"""One observation of the whole host. A part that cannot be read becomes a problem of it, not a failure of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar, cast

from orchestrator.agent.attachments.kind import Kinds, Observation, ObservedKind
from orchestrator.agent.attachments.mig_backed import InstanceHolders
from orchestrator.agent.fabric.fmpm import FabricManager
from orchestrator.agent.fabric.observing import observe_fabric, without_waiting
from orchestrator.agent.images.store import Storage
from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.libvirt.networks import FoundNetworks, LibvirtNetworks
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.reading import Nvml, NvmlGpu, NvmlReading, type_names
from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, run
from orchestrator.agent.sessions import Sessions
from orchestrator.agent.sysfs import machine, pci, reading
from orchestrator.agent.version import agent_version
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.gpu_cards import GpuCard
from orchestrator.core.errors import Fatal, VgpuctlError, WorldError
from orchestrator.core.gpu.device import DeviceKind, Framework, VgpuParent
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.hosts.domain import MadeAs
from orchestrator.core.hosts.snapshot import (
    NOT_TOLD,
    DomainSnapshot,
    GpuInstance,
    GpuSnapshot,
    HostSnapshot,
    HostVgpuType,
)
from orchestrator.core.protocol import PROTOCOL_VERSION

_AS_READ: Final = (
    {field.name for field in fields(NvmlGpu)} & {field.name for field in fields(GpuSnapshot)}
) - {"uuid", "types", "problems", "instances"}  # fmt: skip
"""What a snapshot tells of a GPU just as its driver says it."""


def observe_gpus(paths: Paths, ledger: Ledger, kinds: Kinds, reading: NvmlReading) -> tuple[GpuSnapshot, ...]:
    """All NVIDIA GPUs of the host, by PCI address."""
    shared = Observation(paths, type_names(reading))
    observed = {name: kind.observe(shared) for name, kind in kinds.items()}
    unseen = NvmlGpu(problems=("NVML does not list this GPU", *reading.unplaced))
    readings = [(gpu, _remembered(observed, gpu) or reading.gpus.get(gpu.address, unseen)) for gpu in pci.gpus(paths)]
    with suppress(Fatal):  # a disk that cannot be written to costs no observation
        ledger.cards.saw(_cards(readings))
    strangers = ledger.cards.strangers()
    return tuple(_gpu(observed, gpu, ledger, observation, strangers.get(gpu.address)) for gpu, observation in readings)


def _cards(readings: Iterable[tuple[pci.PciGpu, NvmlGpu]]) -> Iterator[GpuCard]:
    for gpu, observation in readings:
        if observation.uuid:
            yield GpuCard(address=gpu.address, uuid=observation.uuid, serial=observation.serial)


def _remembered(kinds: Mapping[DeviceKind, ObservedKind], gpu: pci.PciGpu) -> NvmlGpu | None:
    return next((observation for kind in kinds.values() if (observation := kind.remembered(gpu)) is not None), None)


def _gpu(
    kinds: Mapping[DeviceKind, ObservedKind],
    gpu: pci.PciGpu,
    ledger: Ledger,
    observation: NvmlGpu,
    stranger: str | None,
) -> GpuSnapshot:
    problems = [*filter(None, [stranger]), *observation.problems]
    framework: Framework = "none"
    mig_before = ledger.mig_mode_before(gpu.address)
    parents: tuple[VgpuParent, ...] = ()
    types = observation.types
    try:
        offered = next((kind for kind in kinds if kinds[kind].offered_on(gpu)), None)
        if offered is not None:
            framework = cast("Framework", offered)  # the kind that shares another's functions offers none
            parents = kinds[offered].parents(gpu, problems)
        types = types or _described_types(kinds.values(), gpu)
    except (OSError, ValueError) as error:  # a GPU that falls off the bus while it is read costs itself only
        problems.append(f"its functions cannot be read: {error}")
    return GpuSnapshot(
        address=gpu.address,
        uuid=observation.uuid or "",
        model=observation.name or f"NVIDIA {gpu.vendor}:{gpu.device}",
        pci_vendor=gpu.vendor,
        pci_device=gpu.device,
        pci_subsystem_vendor=gpu.subsystem_vendor,
        pci_subsystem_device=gpu.subsystem_device,
        numa_node=gpu.numa_node,
        driver=gpu.driver,
        framework=framework,
        sriov_total_vfs=gpu.total_vfs,
        sriov_enabled_vfs=gpu.enabled_vfs,
        types=types,
        parents=parents,
        problems=tuple(problems),
        **{name: getattr(observation, name) for name in _AS_READ},
        instances=tuple(_instance(instance, gpu.address, ledger) for instance in observation.instances),
        iommu_shared_with=gpu.iommu_shared_with,
        bridges=gpu.bridges,
        mig_found=None if ledger.is_lost() else observation.mig_enabled if mig_before is None else mig_before,
    )


def _with_signals(gpus: Sequence[GpuSnapshot], logged: Mapping[str, tuple[GpuSignal, ...]]) -> tuple[GpuSnapshot, ...]:
    """With what was logged of each, and of the fabric's switches: an SXid is told of every GPU that is joined to it."""
    of_switches = {
        signal.name: signal for signals in logged.values() for signal in signals if signal.name.startswith("sxid-")
    }
    return tuple(
        replace(
            gpu,
            signals=(
                *logged.get(gpu.address, ()),
                *(of_switches.values() if gpu.module_id is not None else ()),
                *gpu.signals,
            ),
        )
        for gpu in gpus
    )


def _instance(instance: FoundInstance, gpu: str, ledger: Ledger) -> GpuInstance:
    holders = InstanceHolders(ledger).of(gpu, instance.start)
    return GpuInstance(
        id=instance.id, profile=instance.profile, start=instance.start, size=instance.size, compute=instance.compute,
        owner=next((vm for vm, made_as in holders.items() if made_as == instance.profile), None),
        devices=instance.devices, capabilities=instance.capabilities,
    )  # fmt: skip


def _described_types(kinds: Iterable[ObservedKind], gpu: pci.PciGpu) -> tuple[HostVgpuType, ...]:
    """Without NVML: what sysfs says."""
    types = {vgpu_type.type_id: vgpu_type for kind in kinds for vgpu_type in kind.types(gpu)}
    return tuple(types[type_id] for type_id in sorted(types))


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


def is_replaced(paths: Paths, domain: str) -> bool:
    """Whether the program that the domain's QEMU runs is there no more, as a package has put a newer one in its place
    (proc(5): what ``exe`` leads to is ``(deleted)``)."""
    process = reading.text(paths.root / "run/libvirt/qemu" / f"{domain}.pid")
    try:
        return bool(process) and str((paths.proc / f"{process}/exe").readlink()).endswith(" (deleted)")
    except OSError:  # it has just ended
        return False


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
        gpus = _with_signals(observe_gpus(self.paths, self.ledger, self.kinds, nvml), logged)
        fabric = observe_fabric(self.paths, self.ledger, self.fabric, gpus)
        about = machine.read(self.paths)
        disk = shutil.disk_usage(self.paths.storage)
        pools, shared = self.storage.shared.observe()
        none: tuple[DomainSnapshot, ...] = ()
        domains = problems.read(lambda: self.domains.snapshots(problems.found.append), none)
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
            gpus=without_waiting(gpus, fabric),
            domains=tuple(
                replace(domain, qemu_replaced=domain.owner is not None and is_replaced(self.paths, domain.name))
                for domain in domains
            ),
            volumes=(*self.storage.volumes(), *shared),
            seeds=self.storage.seeds(),
            data=self.storage.data.snapshots(),
            images=self.storage.images(),
            networks=networks.active,
            bridges=networks.bridges,
            problems=(*problems.found, *self.wanted.problems()),
            epoch=self.ledger.epoch(),
            ledger_lost=self.ledger.is_lost(),
            confinement=None if hypervisor is None else hypervisor.confinement,
            fabric=fabric,
            nodes=machine.read_numa_nodes(self.paths),
            features=machine.read_features(self.paths),
            nics=self.nics.observe(),
            cpu=machine.read_cpu(self.paths),
            dcgm_version=self.dcgm.version(),
            sessions_full=self.sessions.full(),
            restoring=self.wanted.is_restoring(),
            pools=pools,
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
