# SPDX-License-Identifier: Apache-2.0
"""What rules out a move beside a lack of room: of the VM itself, of two hosts, of two GPUs. A rule is a row.

Sources: OpenStack Nova's virtual-gpu guide (floors of libvirt, QEMU and the kernel), NVIDIA AI Enterprise "vGPU live
migration" (equal boards, host drivers, ECC and GPU modes; no unified memory, debuggers or profilers), QEMU
docs/devel/migration/compatibility.rst (a QEMU takes the state of an older one, and CPUs of one model).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from orchestrator.core.actions.live_move import MAX_DOMAIN_NAME
from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_parameters import VgpuParameters
from orchestrator.core.hosts.host import HostState
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.moves.verdicts import EVERY, WITH_DEVICES, WITH_MEMORY, Bars, MoveKind, MoveLimit
from orchestrator.core.vms.vm import Vm

_FLOORS: Final = (
    ("kernel", (5, 18), "kernel", "move.kernel_too_old"),
    ("libvirt", (8, 6), "libvirt", "move.libvirt_too_old"),
    ("qemu", (8, 1), "QEMU", "move.qemu_too_old"),
)
"""Field of the host's facts, oldest version that moves vGPUs with their state, name, code."""


@dataclass(frozen=True, kw_only=True)
class Traveller:
    """A VM as its own rules see it."""

    vm: Vm
    host_state: HostState | None
    """Of its own host; None: it is not known any more."""
    offered: bool
    """Whether its offering says that its VMs may be moved while they run."""


@dataclass(frozen=True, kw_only=True)
class Between:
    """The hosts of a move."""

    vm: Vm
    source: HostFacts
    """Of its own host."""
    target: HostFacts
    name: str
    """Of the other one."""

    @property
    def whole_gpus(self) -> bool:
        return any(device.is_whole_gpu for device in self.vm.devices)


@dataclass(frozen=True, kw_only=True)
class GpuPair:
    """A GPU that a VM has a device on, and one that it might have it on."""

    device: Device
    source: GpuSnapshot
    target: GpuSnapshot


T = TypeVar("T")


@dataclass(frozen=True)
class _Rule(Generic[T]):
    code: str
    bars: frozenset[MoveKind]
    why: Callable[[T], str | None]
    """In words; None: it rules nothing out."""
    cure: str | None = None

    def limits(self, about: T, **names: str) -> Iterator[Bars]:
        """``names``: of things that the cure may name."""
        why = self.why(about)
        if why is not None:
            cure = None if self.cure is None else self.cure.format(**names)
            yield self.bars, MoveLimit(code=self.code, message=why, cure=cure)


def _when(holds: Callable[[T], bool], words: str) -> Callable[[T], str | None]:
    return lambda about: words if holds(about) else None


def _parameters(read: Callable[[VgpuParameters], bool]) -> Callable[[Traveller], bool]:
    return lambda moving: any(item.parameters is not None and read(item.parameters) for item in moving.vm.devices)


def _host_away(vm: Vm) -> str:
    """Of a disk in a pool it is known that others reach it, and not whether its own host still writes there."""
    why = "it may still write to its disk" if vm.spec.pool is not None else "its disk is on it"
    return f"its host does not answer or is not ready, and {why}"


OWN_HOST_AWAY: Final = "move.own_host_away"
SUSPENDED: Final = "move.suspended"
_SET_BY_OFFERING: Final = "an offering without it: the VM is made again from that one"
_OF_VM: Final = (
    _Rule[Traveller](
        "move.adopted", EVERY, _when(lambda it: it.vm.spec.adopted is not None, "its definition and disks are not ours")
    ),
    _Rule[Traveller](
        "move.unsettled", EVERY,
        lambda it: None if it.vm.state in {"running", "stopped"} else f"it is {it.vm.state}",
        "'vgpuctl operation list' shows what works on it",
    ),
    _Rule[Traveller](
        OWN_HOST_AWAY, EVERY,
        lambda it: None if it.host_state == "ready" else _host_away(it.vm),
        "the host answers and is ready again",
    ),
    _Rule[Traveller](
        "move.deallocated", EVERY, _when(lambda it: it.vm.deallocated is not None, "it has given its claim back"),
        "'vgpuctl start-vm {vm} --tenant {tenant}' claims a place again",
    ),
    _Rule[Traveller](
        "move.tpm", frozenset({"hibernated", "cold"}),
        _when(lambda it: bool(it.vm.spec.tpm), "the state of its TPM is on its host, and does not go with its disk"),
        "a VM without '--tpm'",
    ),
    _Rule[Traveller](
        "move.encrypted", WITH_MEMORY,
        _when(lambda it: it.vm.spec.encrypted, "its disk is encrypted, and its memory holds what that holds"),
        "it is stopped: 'vgpuctl stop-vm {vm} --tenant {tenant}'",
    ),
    _Rule[Traveller](
        "move.not_running", WITH_MEMORY,
        _when(lambda it: it.vm.state == "stopped" and it.vm.suspended_bytes is None, "it is stopped"),
        "'vgpuctl start-vm {vm} --tenant {tenant}' starts it",
    ),
    _Rule[Traveller](
        SUSPENDED, EVERY - {"suspended"},
        _when(lambda it: it.vm.suspended_bytes is not None, "its memory is on its host's disk, and does not move"),
        "'vgpuctl vm resume {vm} --tenant {tenant}', or 'discard-suspended' there",
    ),
    _Rule[Traveller](
        "move.not_offered", frozenset({"live"}),
        _when(lambda it: not it.offered, "its offering does not say that VMs of it move while they run"),
        "an offering with 'migratable: true'",
    ),
    _Rule[Traveller](
        "move.pinned", frozenset({"live"}),
        _when(lambda it: it.vm.cpus is not None, "its CPUs and memory are those of its host's nodes"),
        "a VM whose offering does not pin CPUs",
    ),
    _Rule[Traveller](
        "move.long_name", frozenset({"live"}),
        _when(lambda it: len(it.vm.domain_name) > MAX_DOMAIN_NAME, "its name and its tenant's are too long"),
        "a shorter name: 'vgpuctl vm rename {vm} NAME --tenant {tenant}' when it is stopped",
    ),
    _Rule[Traveller](
        "move.whole_gpu", WITH_DEVICES,
        _when(lambda it: any(device.is_whole_gpu for device in it.vm.devices), "a whole GPU's state cannot be read"),
        "a vGPU in place of the whole GPU",
    ),
    _Rule[Traveller](
        "move.uvm", WITH_DEVICES, _when(_parameters(lambda it: it.uvm), "unified memory is on in its vGPU"),
        _SET_BY_OFFERING,
    ),
    _Rule[Traveller](
        "move.debugger", WITH_DEVICES, _when(_parameters(lambda it: it.debugging), "CUDA debuggers are on in its vGPU"),
        _SET_BY_OFFERING,
    ),
    _Rule[Traveller](
        "move.profiler", WITH_DEVICES, _when(_parameters(lambda it: it.profiling), "CUDA profilers are on in its vGPU"),
        _SET_BY_OFFERING,
    ),
    _Rule[Traveller](
        "move.fabric", WITH_DEVICES,
        _when(lambda it: any(item.fabric is not None and not item.is_whole_gpu for item in it.vm.devices),
              "its vGPUs reach each other by NVLink"),
        "a VM with one vGPU",
    ),
    _Rule[Traveller](
        "move.nic_function", WITH_DEVICES,
        _when(lambda it: it.vm.nic is not None, "nobody can read the state of its network function"),
        "a VM without '--nic'",
    ),
)  # fmt: skip


def _numbers(version: str) -> tuple[int, ...]:
    """``6.12.43+deb13-amd64`` as (6, 12, 43)."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return () if match is None else tuple(int(part) for part in match[0].split("."))


def _drivers(it: Between) -> tuple[str, str] | None:
    """Host drivers that do not fit, where the VM's GPU is its host driver's."""
    return None if it.whole_gpus or it.source.driver == it.target.driver else (it.target.driver, it.source.driver)


def _driver_branch(it: Between) -> str | None:
    differ = _drivers(it)
    if differ is None or (all(differ) and _numbers(differ[0])[:1] == _numbers(differ[1])[:1]):
        return None
    return f"{it.name} has host driver {differ[0] or 'unknown'} and its own host {differ[1] or 'unknown'}"


def _driver_version(it: Between) -> str | None:
    differ = _drivers(it)
    if differ is None or _driver_branch(it) is not None:
        return None
    return f"{it.name} has host driver {differ[0]} and its own host {differ[1]}, of one branch but not the same"


def _qemu_older(it: Between) -> str | None:
    source, target = _numbers(it.source.qemu), _numbers(it.target.qemu)
    return (
        f"{it.name} has QEMU {it.target.qemu}, older than {it.source.qemu} of its own host" if target < source else None
    )


def _cpu(it: Between) -> str | None:
    source, target = it.source.cpu, it.target.cpu
    if source is None or target is None:
        return f"which CPUs {it.name if target is None else 'its own host'} has is not told"
    if source.model != target.model:
        return f"{it.name} has {target.model} and its own host {source.model}"
    return (
        None
        if source.features == target.features
        else f"CPUs of {it.name} have other features than those of its own host"
    )


def _page_size(it: Between) -> str | None:
    source, target = it.source.cpu, it.target.cpu
    if source is None or target is None or source.page_kib == target.page_kib:
        return None
    return f"{it.name} has pages of {target.page_kib} KiB and its own host of {source.page_kib} KiB"


def _too_old(field: str, floor: tuple[int, ...], what: str) -> Callable[[Between], str | None]:
    def why(it: Between) -> str | None:
        wanted = ".".join(map(str, floor))
        for name, facts in ((it.name, it.target), ("its own host", it.source)):
            version: str = getattr(facts, field)
            if _numbers(version) < floor:
                return f"{name} has {what} {version or 'unknown'}, and vGPUs move with their state from {wanted} on"
        return None

    return why


_UPGRADE: Final = "'vgpuctl driver upgrade --to VERSION' gives hosts one driver"
_OF_DRIVERS: Final = (
    _Rule[Between]("move.host_driver", WITH_MEMORY, _driver_branch, _UPGRADE),
    _Rule[Between]("move.host_driver_version", WITH_DEVICES, _driver_version, _UPGRADE),
)
_OF_HOSTS: Final = (
    _Rule[Between]("move.cpu", WITH_MEMORY, _cpu, "a host with the same CPUs and microcode"),
    _Rule[Between]("move.page_size", WITH_DEVICES, _page_size, "a kernel with pages of the same size"),
    _Rule[Between]("move.qemu_older", WITH_DEVICES, _qemu_older, "the same QEMU or a newer one there"),
    *(
        _Rule[Between](code, WITH_DEVICES, _too_old(field, floor, name), f"a newer {name}")
        for field, floor, name, code in _FLOORS
    ),
)


def _board_of(gpu: GpuSnapshot) -> tuple[str, ...]:
    return gpu.pci_vendor, gpu.pci_device, gpu.pci_subsystem_vendor, gpu.pci_subsystem_device


def _board(it: GpuPair) -> str | None:
    if _board_of(it.source) == _board_of(it.target):
        return None
    return (
        f"it runs on {it.source.model} {':'.join(_board_of(it.source)[1::2])}, and this is {it.target.model} "
        + ":".join(_board_of(it.target)[1::2])
    )


def _type(it: GpuPair) -> str | None:
    if it.device.is_whole_gpu or any(kind.name == it.device.type_name for kind in it.target.types):
        return None
    return f"the GPU's driver has no {it.device.type_name}"


def _framework(it: GpuPair) -> str | None:
    if it.device.is_whole_gpu or it.source.framework == it.target.framework:
        return None
    return f"the way in which vGPUs are made is {it.target.framework} there and {it.source.framework} on its own host"


_SAME_BOARD: Final = "a GPU of the same board"
_OF_GPUS: Final = (
    _Rule[GpuPair]("move.vgpu_type", WITH_MEMORY, _type, "a GPU that offers the same vGPU type"),
    _Rule[GpuPair]("move.framework", WITH_DEVICES, _framework, "a host whose driver offers vGPUs in the same way"),
)
_OF_GPU_DATA: Final = (
    _Rule[GpuPair]("move.gpu", WITH_MEMORY, _board, _SAME_BOARD),
    _Rule[GpuPair](
        "move.ecc", WITH_DEVICES,
        lambda it: None if it.source.ecc == it.target.ecc else f"ECC is {_on(it.target.ecc)}, now {_on(it.source.ecc)}",
        "'nvidia-smi -e 0' or '-e 1' and a reset of the GPU",
    ),
    _Rule[GpuPair](
        "move.vgpu_state", WITH_DEVICES,
        lambda it: None if it.device.is_whole_gpu else _unmovable(it),
        "a driver and GPU that move vGPUs with their state",
    ),
)  # fmt: skip


def _on(ecc: bool | None) -> str:
    return "not there" if ecc is None else "on" if ecc else "off"


def _unmovable(it: GpuPair) -> str | None:
    for gpu, place in ((it.source, "its own host"), (it.target, "the other host")):
        if not gpu.moves_vgpus:
            says = "does not say that it moves" if gpu.moves_vgpus is None else "does not move"
            return f"the driver of {place} {says} vGPUs of this GPU with their state"
    return None


def limits_of_vm(moving: Traveller) -> tuple[Bars, ...]:
    """What rules moves of the VM out wherever it would go."""
    names = {"vm": moving.vm.spec.name, "tenant": moving.vm.spec.tenant}
    return tuple(bars for rule in _OF_VM for bars in rule.limits(moving, **names))


def limits_between(hosts: Between) -> tuple[Bars, ...]:
    """What rules moves out between two hosts, whatever GPU it gets."""
    return tuple(bars for rule in _OF_HOSTS for bars in rule.limits(hosts))


def limits_of_gpus(pair: GpuPair) -> tuple[Bars, ...]:
    """What rules moves out from one GPU to the other, whatever their drivers say."""
    return tuple(bars for rule in _OF_GPUS for bars in rule.limits(pair))


def limits_by_data(hosts: Between, pair: GpuPair) -> tuple[Bars, ...]:
    """What rules moves out from one GPU to the other where no driver can be asked."""
    of_drivers = (bars for rule in _OF_DRIVERS for bars in rule.limits(hosts))
    return (*of_drivers, *(bars for rule in _OF_GPU_DATA for bars in rule.limits(pair)))
