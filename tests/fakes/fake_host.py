# SPDX-License-Identifier: Apache-2.0
"""GPU hosts that live in memory and behave like an agent on a real one: ownership, idempotence, refusals, loss.

Faults strike at numbered effects, before or after them, so that a test can walk through all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree as ET

from orchestrator.core.errors import Conflict, Denied, Fatal, Retryable, Unknown
from orchestrator.core.host import Host
from orchestrator.core.host_actions import (
    ActionResult,
    ClearVgpuType,
    CreateMdev,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    EnsureNetwork,
    HostAction,
    ImageFormat,
    ManageGpus,
    RemoveMdev,
    RemoveNetwork,
    SetVgpuType,
    StartDomain,
    StopDomain,
    Token,
    UndefineDomain,
    WriteSeed,
)
from orchestrator.core.snapshot import (
    DomainSnapshot,
    FileSnapshot,
    GpuSnapshot,
    HostSnapshot,
    HostVgpuType,
    Mdev,
    VgpuParent,
)
from orchestrator.ports.host import ByteStream

T = TypeVar("T")

GIB = 1024**3


class Crash(BaseException):
    """The control plane dies here (kill -9): nobody catches it."""


@dataclass
class FakeGpu:
    address: str
    framework: str
    """``mdev`` on the GPU itself, or ``vendor_vfio`` on virtual functions."""
    types: tuple[HostVgpuType, ...]
    functions: int = 0
    enabled: bool = False

    def function_addresses(self) -> list[str]:
        if self.framework == "mdev":
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
    site: str | None = None
    managed: tuple[str, ...] = ()
    mdevs: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)
    """UUID → (parent, type, owner)."""
    vf_types: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    domains: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """UUID → (XML, running)."""
    volumes: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    """Name → (owner, size, base)."""
    seeds: dict[str, str] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    networks: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    answers: bool = True
    gives_addresses: bool = True
    guests_die: bool = False

    def state(self) -> dict[str, object]:
        """What must be as before once an operation was undone; base images and networks stay by design."""
        kept = copy.deepcopy(self.__dict__)
        for name in ("images", "networks", "attempts", "answers", "gives_addresses", "guests_die"):
            del kept[name]
        kept["gpus"] = [(gpu.address, gpu.enabled) for gpu in self.gpus]
        return kept


Strike = Callable[[int, str, str], BaseException | None]
"""(number of the effect, ``before`` or ``after``, its name) → what happens there."""


def no_fault(_number: int, _moment: str, _name: str) -> BaseException | None:
    return None


class FakeHosts:
    """Implements ports.host.HostLink and Configurator over machines named by their address."""

    def __init__(self, machines: dict[str, FakeMachine], site: str = "site") -> None:
        self.machines = machines
        self.site = site
        self.strike: Strike = no_fault
        self.effects: list[str] = []

    def reset(self, machines: dict[str, FakeMachine]) -> None:
        """Other machines, nothing done yet, no faults."""
        self.machines, self.strike, self.effects = machines, no_fault, []

    def observe(self, host: Host) -> HostSnapshot:
        return _snapshot(self._machine(host))

    def perform(self, host: Host, action: HostAction, token: Token) -> ActionResult:
        machine = self._machine(host)
        _check_token(machine, token)
        return self._effect(type(action).__name__, lambda: _perform(machine, action))

    def send_image(self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: Token) -> ActionResult:
        machine = self._machine(host)
        _check_token(machine, token)
        name = f"{sha256}.{image_format}"
        changed = name not in machine.images
        self._effect("send_image", lambda: machine.images.add(name))
        return ActionResult(changed=changed)

    def watch(self, host: Host) -> Iterator[dict[str, object]]:
        self._machine(host)
        return iter(())

    def open_console(self, host: Host, vm: str) -> ByteStream:
        return _Echo(f"console of {vm} on {host.name}\n".encode())

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        return _Echo(f"{vm}:{port}\n".encode())

    def forget(self, host: Host) -> None:
        """No connections are kept."""

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        machine = self.machines[host.address]
        if machine.site not in {None, self.site} and not take_over:
            raise Conflict("host.other_site", "the host serves another site", hint="use --take-over")
        progress("install")

        def install() -> None:
            machine.site = self.site

        self._effect("install_agent", install)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        machine = self.machines[host.address]
        if machine.site not in {None, self.site}:
            raise Conflict("host.other_site", "the host serves another site")
        progress("remove")

        def remove() -> None:
            machine.site = None

        self._effect("remove_agent", remove)

    def _machine(self, host: Host) -> FakeMachine:
        machine = self.machines[host.address]
        if not machine.answers or machine.site is None:
            raise Retryable("host.unreachable", f"{host.address} cannot be reached")
        if machine.site != self.site:
            raise Denied("agent.other_site", "the host obeys another site")
        return machine

    def _effect(self, name: str, effect: Callable[[], T]) -> T:
        number = len(self.effects)
        self.effects.append(name)
        before = self.strike(number, "before", name)
        if before is not None:
            raise before
        result = effect()
        after = self.strike(number, "after", name)
        if after is not None:
            raise after
        return result


class _Echo:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def send(self, data: bytes, /) -> None:
        self._content += data

    def receive(self, size: int, /) -> bytes:
        head, self._content = self._content[:size], self._content[size:]
        return head

    def close(self) -> None:
        self._content = b""


def _check_token(machine: FakeMachine, token: Token) -> None:
    if token.attempt < machine.attempts.get(token.operation, 0):
        raise Denied("agent.stale_token", "a newer attempt has begun")
    machine.attempts[token.operation] = token.attempt


def _perform(machine: FakeMachine, action: HostAction) -> ActionResult:
    before = copy.deepcopy(machine.__dict__)
    _ACTIONS[type(action)](machine, action)
    return ActionResult(changed=before != machine.__dict__)


def _gpu_of(machine: FakeMachine, function: str) -> FakeGpu:
    for gpu in machine.gpus:
        if function in {gpu.address, *gpu.function_addresses()}:
            if gpu.address not in machine.managed:
                raise Denied("gpu.not_managed", "that GPU is not ours")
            return gpu
    raise Fatal("gpu.gone", f"no GPU has {function}")


def _on_gpu(machine: FakeMachine, gpu: FakeGpu) -> list[str]:
    functions = set(gpu.function_addresses())
    types = [kind for parent, kind, _ in machine.mdevs.values() if parent in functions]
    return types + [kind for function, (kind, _) in machine.vf_types.items() if function in functions]


def _room(machine: FakeMachine, gpu: FakeGpu, type_name: str) -> bool:
    kinds = {one.name: one for one in gpu.types}
    there = _on_gpu(machine, gpu)
    sizes = {kinds[name].framebuffer_mib for name in there}
    wanted = kinds.get(type_name)
    return wanted is not None and sizes <= {wanted.framebuffer_mib} and len(there) < wanted.max_instances


def _create_mdev(machine: FakeMachine, action: CreateMdev) -> None:
    gpu = _gpu_of(machine, action.parent)
    there = machine.mdevs.get(action.uuid)
    if there is not None:
        if there != (action.parent, action.type_name, action.vm):
            raise Conflict("vgpu.foreign", "that UUID is somebody else's")
        return
    if not _room(machine, gpu, action.type_name):
        raise Fatal("vgpu.no_room", "the GPU takes no such vGPU now")
    machine.mdevs[action.uuid] = (action.parent, action.type_name, action.vm)


def _remove_mdev(machine: FakeMachine, action: RemoveMdev) -> None:
    there = machine.mdevs.get(action.uuid)
    if there is None:
        return
    if there[2] != action.vm:
        raise Conflict("vgpu.foreign", "that vGPU is somebody else's")
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    del machine.mdevs[action.uuid]


def _set_type(machine: FakeMachine, action: SetVgpuType) -> None:
    gpu = _gpu_of(machine, action.vf)
    if not gpu.enabled:
        raise Fatal("vgpu.function_gone", "virtual functions are off")
    there = machine.vf_types.get(action.vf)
    if there is not None:
        if there != (action.type_name, action.vm):
            raise Conflict("vgpu.foreign", "that function is somebody else's")
        return
    if not _room(machine, gpu, action.type_name):
        raise Fatal("vgpu.no_room", "the GPU takes no such vGPU now")
    machine.vf_types[action.vf] = (action.type_name, action.vm)


def _clear_type(machine: FakeMachine, action: ClearVgpuType) -> None:
    there = machine.vf_types.get(action.vf)
    if there is None:
        return
    if there[1] != action.vm:
        raise Conflict("vgpu.foreign", "that function is somebody else's")
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    del machine.vf_types[action.vf]


def _create_volume(machine: FakeMachine, action: CreateVolume) -> None:
    base = f"{action.base_sha256}.{action.base_format}"
    if base not in machine.images:
        raise Fatal("image.missing", "the base image is not on the host")
    there = machine.volumes.get(action.volume)
    if there is not None and there[0] != action.vm:
        raise Conflict("host.foreign_file", "that volume is somebody else's")
    machine.volumes[action.volume] = (action.vm, action.size_bytes, base)


def _delete_volume(machine: FakeMachine, action: DeleteVolume) -> None:
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("volume.in_use", "the VM still runs")
    machine.volumes.pop(action.volume, None)


def _write_seed(machine: FakeMachine, action: WriteSeed) -> None:
    machine.seeds[action.seed] = action.vm


def _delete_seed(machine: FakeMachine, action: DeleteSeed) -> None:
    machine.seeds.pop(action.seed, None)


def _define(machine: FakeMachine, action: DefineDomain) -> None:
    if ET.fromstring(action.xml).findtext("uuid") != action.vm:
        raise Fatal("vm.definition_refused", "the UUID differs")
    machine.domains[action.vm] = (action.xml, machine.domains.get(action.vm, ("", False))[1])


def _undefine(machine: FakeMachine, action: UndefineDomain) -> None:
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vm.running", "the VM runs")
    machine.domains.pop(action.vm, None)


def _devices(xml: str) -> tuple[str, ...]:
    found = []
    for address in ET.fromstring(xml).iterfind("devices/hostdev/source/address"):
        parts = address.attrib
        found.append(parts.get("uuid") or _pci_address(parts))
    return tuple(found)


def _pci_address(parts: dict[str, str]) -> str:
    domain, bus, slot, function = (int(parts[name], 16) for name in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def _start(machine: FakeMachine, action: StartDomain) -> None:
    if action.vm not in machine.domains:
        raise Fatal("vm.not_found", "the VM is not defined")
    xml, _ = machine.domains[action.vm]
    for device in _devices(xml):
        if device not in machine.mdevs and device not in machine.vf_types:
            raise Fatal("vm.start_failed", f"device {device} is not there")
    machine.domains[action.vm] = (xml, not machine.guests_die)


def _stop(machine: FakeMachine, action: StopDomain) -> None:
    if action.vm in machine.domains:
        machine.domains[action.vm] = (machine.domains[action.vm][0], False)


def _ensure_network(machine: FakeMachine, action: EnsureNetwork) -> None:
    machine.networks.add(action.name)


def _remove_network(machine: FakeMachine, action: RemoveNetwork) -> None:
    machine.networks.discard(action.name)


def _delete_image(machine: FakeMachine, action: DeleteImage) -> None:
    machine.images.discard(f"{action.sha256}.{action.image_format}")


def _manage(machine: FakeMachine, action: ManageGpus) -> None:
    machine.managed = action.gpus


def _enable(machine: FakeMachine, action: EnableVirtualFunctions) -> None:
    _gpu_of(machine, action.gpu).enabled = True


def _disable(machine: FakeMachine, action: DisableVirtualFunctions) -> None:
    gpu = _gpu_of(machine, action.gpu)
    if _on_gpu(machine, gpu):
        raise Conflict("gpu.in_use", "a virtual function is in use")
    gpu.enabled = False


_ACTIONS: dict[type[HostAction], Callable[..., None]] = {
    CreateMdev: _create_mdev,
    RemoveMdev: _remove_mdev,
    SetVgpuType: _set_type,
    ClearVgpuType: _clear_type,
    CreateVolume: _create_volume,
    DeleteVolume: _delete_volume,
    WriteSeed: _write_seed,
    DeleteSeed: _delete_seed,
    DefineDomain: _define,
    UndefineDomain: _undefine,
    StartDomain: _start,
    StopDomain: _stop,
    EnsureNetwork: _ensure_network,
    RemoveNetwork: _remove_network,
    DeleteImage: _delete_image,
    ManageGpus: _manage,
    EnableVirtualFunctions: _enable,
    DisableVirtualFunctions: _disable,
}


def _snapshot(machine: FakeMachine) -> HostSnapshot:
    volumes = tuple(FileSnapshot(name=n, size_bytes=0, owner=o) for n, (o, _, _) in sorted(machine.volumes.items()))
    return HostSnapshot(
        machine_id=machine.machine_id,
        boot_id="boot",
        hostname="host",
        agent_version="1",
        kernel="6.12",
        os_name="Debian 13",
        libvirt_version="11.3.0",
        qemu_version="10.0.0",
        driver_version="580.95.02",
        vcpus=machine.vcpus,
        memory_mib=machine.memory_mib,
        storage_free_bytes=machine.storage_bytes,
        storage_total_bytes=machine.storage_bytes,
        iommu=True,
        gpus=tuple(_gpu_snapshot(machine, gpu) for gpu in machine.gpus),
        domains=tuple(_domain(machine, uuid) for uuid in sorted(machine.domains)),
        volumes=volumes,
        seeds=tuple(FileSnapshot(name=n, size_bytes=0, owner=o) for n, o in sorted(machine.seeds.items())),
        images=tuple(FileSnapshot(name=name, size_bytes=0, owner=None) for name in sorted(machine.images)),
        networks=tuple(sorted(machine.networks)),
    )


def _domain(machine: FakeMachine, uuid: str) -> DomainSnapshot:
    xml, running = machine.domains[uuid]
    return DomainSnapshot(
        uuid=uuid,
        name=ET.fromstring(xml).findtext("name") or "",
        state="running" if running else "shut_off",
        owner=uuid,
        devices=_devices(xml),
        addresses=("192.168.122.10",) if running and machine.gives_addresses else (),
    )


def _gpu_snapshot(machine: FakeMachine, gpu: FakeGpu) -> GpuSnapshot:
    on = gpu.framework == "mdev" or gpu.enabled
    creatable = tuple(one.name for one in gpu.types if _room(machine, gpu, one.name))
    parents = tuple(_parent(machine, gpu, address, creatable) for address in gpu.function_addresses()) if on else ()
    return GpuSnapshot(
        address=gpu.address,
        uuid=f"GPU-{gpu.address}",
        serial=None,
        model="Tesla T4" if gpu.framework == "mdev" else "NVIDIA L40S",
        pci_vendor="10de",
        pci_device="1eb8" if gpu.framework == "mdev" else "26b9",
        pci_subsystem_vendor="10de",
        pci_subsystem_device="12a2" if gpu.framework == "mdev" else "1851",
        numa_node=0,
        memory_mib=16384 if gpu.framework == "mdev" else 46068,
        driver="nvidia",
        framework="mdev" if gpu.framework == "mdev" else "vendor_vfio" if gpu.enabled else "none",
        sriov_total_vfs=gpu.functions,
        sriov_enabled_vfs=gpu.functions if gpu.enabled else 0,
        mig_enabled=None,
        heterogeneous=False,
        module_id=None,
        types=gpu.types,
        parents=parents,
    )


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
        in_use=machine.domains.get(owner or "", ("", False))[1],
    )


def t4(address: str = "0000:41:00.0") -> FakeGpu:
    sizes = {"GRID T4-1Q": 1024, "GRID T4-2Q": 2048, "GRID T4-4Q": 4096, "GRID T4-16Q": 16384}
    types = tuple(
        HostVgpuType(name=name, type_id=number, framebuffer_mib=mib, max_instances=16384 // mib)
        for number, (name, mib) in enumerate(sizes.items(), start=222)
    )
    return FakeGpu(address=address, framework="mdev", types=types)


def l40s(address: str = "0000:81:00.0") -> FakeGpu:
    sizes = {"NVIDIA L40S-12Q": 12288, "NVIDIA L40S-24Q": 24576, "NVIDIA L40S-48Q": 49152}
    types = tuple(
        HostVgpuType(name=name, type_id=number, framebuffer_mib=mib, max_instances=49152 // mib)
        for number, (name, mib) in enumerate(sizes.items(), start=1145)
    )
    return FakeGpu(address=address, framework="vendor_vfio", types=types, functions=32)


def lost_answer(name: str) -> Unknown:
    return Unknown("agent.channel_cut", f"the answer to {name} was lost")
