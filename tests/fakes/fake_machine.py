# SPDX-License-Identifier: Apache-2.0
"""What is on a GPU host that lives in memory, and how it looks from outside."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree as ET

from orchestrator.core.domain_xml.foreign import managed_by, unsafe_parts
from orchestrator.core.errors import Conflict, Denied, Fatal
from orchestrator.core.gpu.device import Mdev, VgpuParent
from orchestrator.core.gpu.fabric import FabricSnapshot, ObservedPartition
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.licence import VgpuLicence
from orchestrator.core.gpu.vgpu_parameters import SchedulerState
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.domain import MadeAs
from orchestrator.core.hosts.nic import HostNic, NicFunction
from orchestrator.core.hosts.snapshot import (
    Confinement,
    DomainSnapshot,
    DomainState,
    FileSnapshot,
    GpuInstance,
    GpuSnapshot,
    HostCpu,
    HostSnapshot,
    HostVgpuType,
)  # fmt: skip
from orchestrator.core.protocol import PROTOCOL_VERSION
from orchestrator.core.units import GIB
from orchestrator.sim.machine import SimulatedLedger
from orchestrator.sim.pools import SimulatedPool
from tests.fakes.fake_boards import board_of
from tests.fakes.fake_gpu_settings import BEST_EFFORT, driver_settings

FOREIGN_DISK = 40 * GIB
PROFILES = {
    "GRID A100D-1-10C": "1g.10gb", "GRID A100D-1-20C": "1g.20gb",
    "NVIDIA RTX Pro 6000 Blackwell DC-1-8Q": "1g.24gb+gfx",
}  # fmt: skip
SLOTS = {"1g.10gb": 1, "1g.20gb": 2, "1g.24gb+gfx": 3}
SHARED = {"1g.24gb+gfx": 3}
"""Profile → vGPUs that lie in one instance of it; one where it is not named."""
_BY_DESIGN = (
    "images", "networks", "cut_off", "qemu_replaced", "held", "boot", "away", "answers", "gives_addresses",
    "guests_die", "described", "bridges", "copying")  # fmt: skip


@dataclass
class FakeGpu:
    address: str
    framework: str
    """``mdev`` on the GPU itself or on virtual functions, where it has some, or ``vendor_vfio`` on those."""
    types: tuple[HostVgpuType, ...]
    functions: int = 0
    enabled: bool = False
    mig: bool | None = None
    """In MIG mode; None: it has none."""
    instances: dict[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """First memory slot → (profile, VMs that hold it)."""
    inside: dict[str, int] = field(default_factory=dict)
    """Function → first slot of the GPU instance that its vGPU lies in."""
    mig_before: bool | None = None  # in the agent's ledger
    driver: str | None = "nvidia"
    passed_to: tuple[str | None, str, bool] | None = None
    """(owner, model, whether virtual functions were on before) while vfio-pci has it."""
    scheduler: SchedulerState = BEST_EFFORT
    schedules: bool = True
    """Its driver has a scheduler to set."""
    scheduler_users: tuple[str, ...] = ()
    """VMs that want it so. Before them it was best effort."""
    mixes: bool = False
    mixed_users: tuple[str, ...] = ()
    """VMs that want it to take several sizes. Before them it took one."""
    places: dict[str, int] = field(default_factory=dict)
    """Function → where its vGPU lies among other sizes."""
    module_id: int | None = None
    """On an HGX baseboard."""
    card: str = ""
    """Its UUID, if it is another card than was there first."""
    tells_memory: bool = True
    power_limit: int = 0
    signals: tuple[GpuSignal, ...] = ()

    @property
    def uuid(self) -> str:
        return self.card or f"GPU-{self.address}"

    def function_addresses(self) -> list[str]:
        if not self.functions:
            return [self.address]
        head = self.address[:-4]
        return [f"{head}{slot:02x}.{number}" for slot in range(1, 9) for number in range(8)][: self.functions]


@dataclass
class FakeMachine:
    """Everything on one host."""

    machine_id: str
    gpus: list[FakeGpu]
    vcpus: int = 16
    memory_mib: int = 65536
    storage_bytes: int = 500 * GIB
    managed: tuple[str, ...] = ()
    mdevs: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)
    """UUID → (parent, type, owner)."""
    vf_types: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)  # vGPU → text
    partitions: dict[int, tuple[int, ...]] = field(default_factory=dict)
    active_partitions: dict[int, str | None] = field(default_factory=dict)
    """Of its baseboard's fabric: id → module ids; id → owner."""
    fabric_problem: str | None = None
    domains: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """UUID → (XML, running)."""
    licences: tuple[VgpuLicence, ...] = ()
    """As its driver tells them; those of VMs that do not run are not told."""
    gone: set[str] = field(default_factory=set)  # those that have left for another host
    foreign: set[str] = field(default_factory=set)
    transient: set[str] = field(default_factory=set)
    """UUIDs of domains that somebody else made."""
    adopted: set[str] = field(default_factory=set)
    volumes: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    """Name → (owner, size, base); name → where it was made, which goes with it."""
    seeds: dict[str, str] = field(default_factory=dict)
    described: dict[str, MadeAs] = field(default_factory=dict)
    nvram: set[str] = field(default_factory=set)  # VMs whose UEFI variables are here
    data: dict[str, tuple[int, str | None]] = field(default_factory=dict)  # file → (size, VM that has it)
    data_nobodys: set[str] = field(default_factory=set)  # files that a lost ledger does not know
    images: set[str] = field(default_factory=set)
    pools: dict[str, SimulatedPool] = field(default_factory=dict)
    networks: set[str] = field(default_factory=set)
    cut_off: set[tuple[str, str]] = field(default_factory=set)  # VM, network that it runs on and is not plugged into
    qemu_replaced: set[str] = field(default_factory=set)  # domains whose QEMU is not installed any more
    restoring: bool = False
    free_bytes: int | None = None
    nics: tuple[HostNic, ...] = ()
    """Network cards; whose their functions are is in ``nic_owners``."""
    nic_owners: dict[str, str | None] = field(default_factory=dict)  # function that vfio-pci has → VM
    bridges: tuple[Bridge, ...] = (Bridge(name="br0", kind="linux"),)
    ledger: SimulatedLedger = field(default_factory=SimulatedLedger)
    """Its site, fence and cards; owners stand beside what they own."""
    confinement: Confinement | None = "apparmor"
    """What its agent says; None: it is an older one that does not."""
    copying: dict[str, tuple[str, object]] = field(default_factory=dict)  # VM or file → operation, what it copies
    answers: bool = True
    gives_addresses: bool = True
    guests_die: bool = False
    driver_version: str | None = "580.95.02"
    held: bool = False
    """Its driver's module is in use until it reboots."""
    boot: int = 1
    away: int = 0
    """So many calls find it booting."""
    protocol: int = PROTOCOL_VERSION
    """Of its agent; installing it brings the newest."""

    def state(self) -> dict[str, object]:
        """What must be as before once an operation was undone; base images, networks and OVN stay by design."""
        kept = {name: value for name, value in copy.deepcopy(self.__dict__).items() if name not in _BY_DESIGN}
        drawn = {name: "drawn" for name in self.written if name.startswith("key of ")}
        kept["written"] |= drawn  # anew in each operation that makes an encrypted disk
        kept["ledger"] = replace(self.ledger, epoch=0, attempts={})
        kept["gpus"] = [
            (gpu.address, gpu.enabled, dict(gpu.instances), dict(gpu.inside), gpu.passed_to, gpu.scheduler,
             gpu.scheduler_users, gpu.mixes, gpu.mixed_users, dict(gpu.places))
            for gpu in self.gpus
        ]  # fmt: skip
        return kept


def gpu_of(machine: FakeMachine, function: str, *, to_make: bool = False) -> FakeGpu:
    """``to_make``: something is made there, so the card must be the one that was accepted."""
    for gpu in machine.gpus:
        if function in {gpu.address, *gpu.function_addresses()}:
            if gpu.address not in machine.managed:
                raise Denied("gpu.not_managed", "that GPU is not ours")
            if to_make and machine.ledger.cards.get(gpu.address, gpu.uuid) != gpu.uuid:
                raise Conflict("gpu.replaced", "another card is there than was accepted")
            return gpu
    raise Fatal("gpu.gone", f"no GPU has {function}")


def on_gpu(machine: FakeMachine, gpu: FakeGpu) -> list[str]:
    functions = set(gpu.function_addresses())
    types = [kind for parent, kind, _ in machine.mdevs.values() if parent in functions]
    return types + [kind for function, (kind, _) in machine.vf_types.items() if function in functions]


def free_instance(gpu: FakeGpu, type_name: str) -> int | None:
    """The first with room, as the driver chooses."""
    used, profile = list(gpu.inside.values()), PROFILES.get(type_name)
    there = (one for one, (name, _) in gpu.instances.items() if name == profile)
    return min((one for one in there if used.count(one) < SHARED.get(str(profile), 1)), default=None)


def room(machine: FakeMachine, gpu: FakeGpu, type_name: str) -> bool:
    if gpu.mig:
        return free_instance(gpu, type_name) is not None
    kinds, there = {one.name: one for one in gpu.types}, on_gpu(machine, gpu)
    if gpu.mixes:
        return sum(kinds[name].framebuffer_mib for name in (*there, type_name)) <= 49152
    sizes = {kinds[name].framebuffer_mib for name in there}
    wanted = kinds.get(type_name)
    return wanted is not None and sizes <= {wanted.framebuffer_mib} and len(there) < wanted.max_instances


def data_of(xml: str) -> tuple[str, ...]:
    """Files of data volumes that a definition takes."""
    sources = ET.fromstring(xml).iterfind("devices/disk/source")
    return tuple(one.get("file", "").rpartition("/")[2] for one in sources if "/data/" in one.get("file", ""))


def devices(xml: str) -> tuple[str, ...]:
    addresses = ET.fromstring(xml).iterfind("devices/hostdev/source/address")
    return tuple(one.get("uuid") or pci_address(one.attrib) for one in addresses)


def pci_address(parts: dict[str, str]) -> str:
    domain, bus, slot, function = (int(parts[name], 16) for name in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def snapshot_of(machine: FakeMachine) -> HostSnapshot:
    return HostSnapshot(
        machine_id=machine.machine_id,
        epoch=machine.ledger.epoch,
        ledger_lost=machine.ledger.lost,
        confinement=machine.confinement,
        boot_id=f"boot-{machine.boot}",
        hostname="host",
        agent_version="1",
        protocol=machine.protocol,
        kernel="6.12",
        os_name="Debian 13",
        libvirt_version="11.3.0",
        qemu_version="10.0.0",
        driver_version=machine.driver_version,
        vcpus=machine.vcpus,
        memory_mib=machine.memory_mib,
        storage_free_bytes=machine.storage_bytes if machine.free_bytes is None else machine.free_bytes,
        restoring=machine.restoring,
        storage_total_bytes=machine.storage_bytes,
        iommu=True,
        gpus=tuple(_gpu_snapshot(machine, gpu) for gpu in machine.gpus),
        domains=tuple(_domain(machine, uuid) for uuid in sorted(machine.domains)),
        volumes=tuple(FileSnapshot(name=n, size_bytes=0, owner=o) for n, (o, _, _) in sorted(machine.volumes.items())),
        data=tuple(
            FileSnapshot(name=n, size_bytes=0, length_bytes=long, owner=_owner(machine, n))
            for n, (long, _) in sorted(machine.data.items())
            if n.count(".") < 4  # in no pool
        ),
        pools=tuple(pool.snapshot for pool in machine.pools.values()),
        seeds=tuple(FileSnapshot(name=n, size_bytes=0, owner=o) for n, o in sorted(machine.seeds.items())),
        images=tuple(FileSnapshot(name=name, size_bytes=0, owner=None) for name in sorted(machine.images)),
        networks=tuple(sorted(machine.networks)),
        bridges=machine.bridges,
        nics=nics_of(machine),
        fabric=_fabric(machine),
        features=("uefi", "tpm"),
        cpu=HostCpu(model="AMD EPYC 9454", features="0123456789abcdef", page_kib=4),
    )


def _owner(machine: FakeMachine, volume: str) -> str | None:
    return None if volume in machine.data_nobodys else volume.split(".")[1]


def nics_of(machine: FakeMachine) -> tuple[HostNic, ...]:
    def seen(one: NicFunction) -> NicFunction:
        return replace(one, owner=machine.nic_owners.get(one.address))

    return tuple(replace(nic, functions=tuple(map(seen, nic.functions))) for nic in machine.nics)


def _fabric(machine: FakeMachine) -> FabricSnapshot | None:
    if not machine.partitions:
        return None
    active = machine.active_partitions
    partitions = tuple(
        ObservedPartition(id=number, modules=modules, active=number in active, owner=active.get(number))
        for number, modules in machine.partitions.items()
    )
    return FabricSnapshot(version=machine.driver_version, partitions=partitions, problem=machine.fabric_problem)


def _domain(machine: FakeMachine, uuid: str) -> DomainSnapshot:
    xml, running = machine.domains[uuid]
    root, foreign = ET.fromstring(xml), uuid in machine.foreign
    idle: DomainState = "paused" if f"waits: {uuid}" in machine.written else "shut_off"
    return DomainSnapshot(uuid=uuid, name=root.findtext("name") or "", state="running" if running else idle,
        owner=None if foreign else uuid, devices=devices(xml), transient=uuid in machine.transient,
        managed_by=managed_by(root) if foreign else "", unsafe=unsafe_parts(root) if foreign else (),
        cut_off=tuple(sorted(network for vm, network in machine.cut_off if vm == uuid)) if running else (),
        addresses=("192.168.122.10",) if running and machine.gives_addresses else (),
        vcpus=int(root.findtext("vcpu") or 0), disk_bytes=FOREIGN_DISK if foreign else None,
        memory_mib=int(root.findtext("memory") or 0),
        qemu_replaced=running and uuid in machine.qemu_replaced)  # fmt: skip


def _gpu_snapshot(machine: FakeMachine, gpu: FakeGpu) -> GpuSnapshot:
    if gpu.passed_to is not None:
        return replace(_gpu_snapshot(machine, replace(gpu, passed_to=None)), **_passed(machine, gpu))
    on = (gpu.enabled or not gpu.functions) and gpu.driver == "nvidia"
    board = board_of(gpu.types[0].name, gpu.module_id, gpu.framework, has_mig=gpu.mig is not None)
    creatable = tuple(one.name for one in gpu.types if room(machine, gpu, one.name))
    parents = tuple(_parent(machine, gpu, address, creatable) for address in gpu.function_addresses()) if on else ()
    return GpuSnapshot(
        address=gpu.address,
        uuid=gpu.uuid,
        serial=None,
        model=board.model,
        pci_vendor="10de",
        pci_device=board.device,
        pci_subsystem_vendor="10de",
        pci_subsystem_device=board.subsystem,
        numa_node=0,
        memory_mib=board.memory_mib if gpu.tells_memory else None,
        driver=gpu.driver,
        framework=("mdev" if gpu.framework == "mdev" else "vendor_vfio") if on else "none",
        sriov_total_vfs=gpu.functions,
        sriov_enabled_vfs=gpu.functions if gpu.enabled else 0,
        mig_enabled=gpu.mig,
        heterogeneous=gpu.mixes if gpu.functions else None,
        module_id=gpu.module_id,
        types=gpu.types,
        **driver_settings(gpu.power_limit if gpu.driver == "nvidia" else None),
        parents=parents,
        mig_pending=gpu.mig,
        signals=gpu.signals,
        mig_found=None if machine.ledger.lost else gpu.mig if gpu.mig_before is None else gpu.mig_before,
        scheduler=gpu.scheduler if gpu.schedules and not gpu.mig else None,
        licences=_licences(machine, gpu),
        instances=tuple(
            GpuInstance(
                id=start, profile=profile, start=start, size=SLOTS[profile], compute=(0,), owner=(*held, None)[0]
            )
            for start, (profile, held) in sorted(gpu.instances.items())
        ),
    )


def _licences(machine: FakeMachine, gpu: FakeGpu) -> tuple[VgpuLicence, ...]:
    running = {uuid for uuid, (_, runs) in machine.domains.items() if runs}
    return tuple(one for one in machine.licences if one.vm in running) if gpu is machine.gpus[0] else ()


def _passed(machine: FakeMachine, gpu: FakeGpu) -> dict[str, Any]:
    owner, model, _ = gpu.passed_to or ("", "", False)
    used = any(running and gpu.address in devices(xml) for xml, running in machine.domains.values())
    there = VgpuParent(
        address=gpu.address, is_vf=False, current_type=model, creatable=(), mdevs=(), owner=owner, in_use=used
    )
    return {"framework": "passthrough", "driver": "vfio-pci", "parents": (there,)}


def _parent(machine: FakeMachine, gpu: FakeGpu, address: str, creatable: tuple[str, ...]) -> VgpuParent:
    kind, owner = machine.vf_types.get(address, (None, None))
    return VgpuParent(
        address=address,
        is_vf=address != gpu.address,
        current_type=kind,
        creatable=creatable,
        mdevs=tuple(
            Mdev(uuid=uuid, type_name=name, owner=vm)
            for uuid, (parent, name, vm) in sorted(machine.mdevs.items())
            if parent == address
        ),
        owner=owner,
        in_use=any(running and address in devices(xml) for xml, running in machine.domains.values()),
        gpu_instance=gpu.inside.get(address),
        placement_id=gpu.places.get(address),
    )


def _types(kinds: dict[str, tuple[int, int]], first: int) -> tuple[HostVgpuType, ...]:
    """``kinds``: name → (MiB, most on one GPU)."""
    return tuple(
        HostVgpuType(name=name, type_id=number, framebuffer_mib=mib, max_instances=most)
        for number, (name, (mib, most)) in enumerate(kinds.items(), start=first)
    )


def t4(address: str = "0000:41:00.0") -> FakeGpu:
    kinds = {"GRID T4-1Q": (1024, 16), "GRID T4-2Q": (2048, 8), "GRID T4-4Q": (4096, 4), "GRID T4-16Q": (16384, 1)}
    return FakeGpu(address=address, framework="mdev", types=_types(kinds, 222))


def l40s(address: str = "0000:81:00.0") -> FakeGpu:
    kinds = {"NVIDIA L40S-12Q": (12288, 4), "NVIDIA L40S-24Q": (24576, 2), "NVIDIA L40S-48Q": (49152, 1)}
    return FakeGpu(address=address, framework="vendor_vfio", types=_types(kinds, 1145), functions=32)


def a100(address: str = "0000:c1:00.0", framework: str = "vendor_vfio") -> FakeGpu:
    kinds = {"GRID A100D-1-10C": (10240, 7), "GRID A100D-1-20C": (20480, 4), "GRID A100D-20C": (20480, 4)}
    return FakeGpu(address=address, framework=framework, types=_types(kinds, 696), functions=16, mig=False)
