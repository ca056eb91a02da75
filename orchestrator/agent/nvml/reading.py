# SPDX-License-Identifier: Apache-2.0
"""One reading of all GPUs through NVML.

A function that the driver lacks, or that a GPU does not support, is a capability it does not have.
Any other error of a GPU becomes a line in its ``problems``: it is never left out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import pynvml

from orchestrator.agent.nvml.fabric import fabric_of
from orchestrator.agent.nvml.gpu_instances import FoundInstance, device_at, instances, profile_names
from orchestrator.agent.nvml.health import health, licences
from orchestrator.agent.nvml.modes import scheduler_state, set_modes
from orchestrator.agent.nvml.power import power_watts
from orchestrator.agent.nvml.vgpu_metadata import gpu_metadata, open_vgpus
from orchestrator.agent.timing import CallHangs, Gate, TooManyHungCalls
from orchestrator.core.actions.gpu_cards import GpuCard
from orchestrator.core.errors import Fatal, InvalidInput, Unknown
from orchestrator.core.gpu.fabric import GpuFabric
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.licence import VgpuLicence
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.gpu.vgpu_metadata import RunningVgpu
from orchestrator.core.gpu.vgpu_parameters import SchedulerState
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostVgpuType
from orchestrator.core.hosts.snapshot_rules import BOUNDS

T = TypeVar("T")

MIB = 1024 * 1024
_ABSENT = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)
CANNOT = (
    *_ABSENT,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NOT_FOUND,
)
"""An older GPU or driver, MIG mode, no driver, or a GPU that is not the driver's now."""
_READ_SECONDS = 20.0
_CHANGE_SECONDS = 120.0
"""A change of the MIG mode resets the GPU."""


@dataclass(frozen=True, kw_only=True)
class NvmlGpu:
    """What NVML says of one GPU; None where it does not say."""

    uuid: str | None = None
    serial: str | None = None
    name: str | None = None
    memory_mib: int | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    instances: tuple[FoundInstance, ...] = ()
    heterogeneous: bool | None = None
    module_id: int | None = None
    types: tuple[HostVgpuType, ...] = ()
    problems: tuple[str, ...] = ()
    scheduler: SchedulerState | None = None
    licences: tuple[VgpuLicence, ...] = ()
    mig_profiles: tuple[str, ...] = ()
    signals: tuple[GpuSignal, ...] = ()
    ecc: bool | None = None
    moves_vgpus: bool | None = None
    metadata: str | None = None
    open_vgpus: tuple[RunningVgpu, ...] = ()
    power_min_watts: int | None = None
    power_default_watts: int | None = None
    power_max_watts: int | None = None
    power_limit_watts: int | None = None
    fabric: GpuFabric | None = None


GONE_WITH_THE_DRIVER: Final = frozenset(
    {"instances", "scheduler", "licences", "signals", "metadata", "open_vgpus", "power_limit_watts", "fabric"}
)
"""Fields of what is there no more once the driver has let the GPU go."""


@dataclass(frozen=True, kw_only=True)
class NvmlReading:
    driver_version: str | None = None
    gpus: Mapping[str, NvmlGpu] = field(default_factory=dict)
    """By PCI address."""
    problems: tuple[str, ...] = ()
    """Of the driver as a whole."""
    unplaced: tuple[str, ...] = ()
    """Of single GPUs that could not say which they are."""


class Driver(Protocol):
    """NVIDIA's driver as the agent asks it."""

    def read(self) -> NvmlReading:
        """Never raises."""

    def closed(self) -> AbstractContextManager[None]:
        """While this is held, the agent keeps nothing of the driver open."""

    def persistence(self, gpu: str) -> bool:
        """Whether it keeps the GPU initialised, and so in use, while nothing uses it. Not when it does not say."""

    def set_persistence(self, gpu: str, *, on: bool) -> None:
        """:raises Fatal: ``gpu.persistence_refused``"""

    def set_modes(self, gpu: str, *, ecc: bool | None, mig: bool | None) -> bool:
        """Set ECC and MIG mode; None: as it is. Whether one of them is otherwise until the next reset; not, where the
        driver does not tell. :raises Fatal: ``gpu.modes_refused``"""

    def processes(self, gpu: str) -> tuple[int, ...]:
        """Numbers of processes that it says compute or draw there."""


class _Asker:
    """Calls NVML functions of one GPU and collects what went wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def ask(self, what: str, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except pynvml.NVMLError as error:
            if error.value not in _ABSENT:
                self.problems.append(f"NVML {what}: {error}")
        except (ValueError, TypeError, OverflowError) as error:  # a GPU on its way out answers rubbish
            self.problems.append(f"NVML {what} cannot be read: {error}")
        return None


class _VgpuTypes:
    """What an id means is the same on every GPU of one driver, and how many there may be on every GPU of one board in
    the same modes: each is asked once in a reading, as half of all questions are about types. So are names of
    GPU-instance profiles, which are the same on every GPU of one board."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, int]] = {}
        self._offered: dict[tuple[Hashable, tuple[int, ...]], tuple[HostVgpuType, ...]] = {}
        self._profiles: dict[Hashable, tuple[str, ...]] = {}

    def of(self, asker: _Asker, device: Any, alike: Hashable) -> tuple[HostVgpuType, ...]:
        """All that the GPU offers. ``alike``: what GPUs that can hold equally many have in common."""
        supported = asker.ask("supported vGPUs", lambda: pynvml.nvmlDeviceGetSupportedVgpus(device)) or ()
        ids = tuple(int(type_id) for type_id in supported)
        if (alike, ids) in self._offered:
            return self._offered[alike, ids]
        answers = [asker.ask(f"vGPU type {type_id}", partial(self._type, device, type_id)) for type_id in ids]
        types = tuple(vgpu_type for vgpu_type in answers if vgpu_type is not None)
        if len(types) == len(ids):  # what could not be told of one GPU is asked of the next one
            self._offered[alike, ids] = types
        return types

    def profiles(self, asker: _Asker, device: Any, board: Hashable) -> tuple[str, ...]:
        """Of GPU instances; of a GPU that has MIG."""
        if board not in self._profiles:
            self._profiles[board] = asker.ask("GPU-instance profiles", lambda: profile_names(device)) or ()
        return self._profiles[board]

    def _type(self, device: Any, type_id: int) -> HostVgpuType:
        if type_id not in self._known:
            name = str(pynvml.nvmlVgpuTypeGetName(type_id))
            self._known[type_id] = name, int(pynvml.nvmlVgpuTypeGetFramebufferSize(type_id)) // MIB
        name, framebuffer_mib = self._known[type_id]
        most = int(pynvml.nvmlVgpuTypeGetMaxInstances(device, type_id))
        return HostVgpuType(
            name=name,
            type_id=type_id,
            framebuffer_mib=_can_be(HostVgpuType, "framebuffer_mib", framebuffer_mib),
            max_instances=_can_be(HostVgpuType, "max_instances", most),
        )


def _can_be(kind: type, name: str, number: int) -> int:
    """The same, where it is within what a controller believes: it refuses all of a host that says more.

    :raises ValueError: it is not"""
    most = BOUNDS[kind][name].most
    if not 0 <= number <= most:
        raise ValueError(f"{number}, where 0 to {most} can be")
    return number


def _memory_mib(device: Any) -> int:
    return _can_be(GpuSnapshot, "memory_mib", int(pynvml.nvmlDeviceGetMemoryInfo(device).total) // MIB)


def _power(device: Any) -> dict[str, int]:
    return {name: _can_be(GpuSnapshot, name, limit) for name, limit in power_watts(device).items()}


def _module_id(device: Any) -> int:
    return _can_be(GpuSnapshot, "module_id", int(pynvml.nvmlDeviceGetModuleId(device)))


def _gpu(device: Any, board: tuple[int, int], vgpu_types: _VgpuTypes) -> NvmlGpu:
    asker = _Asker()
    memory = asker.ask("memory", lambda: _memory_mib(device))
    mig = asker.ask("MIG mode", lambda: pynvml.nvmlDeviceGetMigMode(device))
    mixed = asker.ask("heterogeneous mode", lambda: pynvml.nvmlDeviceGetVgpuHeterogeneousMode(device))
    metadata = asker.ask("vGPU metadata", lambda: gpu_metadata(device))
    return NvmlGpu(
        uuid=asker.ask("UUID", lambda: str(pynvml.nvmlDeviceGetUUID(device))),
        serial=asker.ask("serial number", lambda: str(pynvml.nvmlDeviceGetSerial(device))),
        name=asker.ask("name", lambda: str(pynvml.nvmlDeviceGetName(device))),
        memory_mib=memory or None,
        mig_enabled=None if mig is None else bool(mig[0]),
        mig_pending=None if mig is None else bool(mig[1]),
        instances=(asker.ask("GPU instances", lambda: instances(device)) or ()) if mig and mig[0] else (),
        heterogeneous=None if mixed is None else bool(mixed),
        module_id=asker.ask("module id", lambda: _module_id(device)),
        types=vgpu_types.of(asker, device, (board, mig and tuple(mig), mixed)),
        scheduler=None if mig and mig[0] else asker.ask("vGPU scheduler", lambda: scheduler_state(device)),
        licences=asker.ask("vGPU licences", lambda: licences(device)) or (),
        signals=tuple(
            signal for what, read in health.items() for signal in asker.ask(what, partial(read, device)) or ()
        ),
        mig_profiles=() if mig is None else vgpu_types.profiles(asker, device, board),
        fabric=asker.ask("fabric", lambda: fabric_of(device)),
        ecc=asker.ask("ECC mode", lambda: bool(pynvml.nvmlDeviceGetEccMode(device)[0])),
        moves_vgpus=None if metadata is None else metadata.moves,
        metadata=None if metadata is None else metadata.text,
        open_vgpus=tuple(open_vgpus(device)),
        **(asker.ask("limits of power", lambda: _power(device)) or {}),
        problems=tuple(asker.problems),
    )


def _read_all() -> NvmlReading:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlReading(problems=(f"the NVIDIA driver does not answer: {error}",))
    driver, single, vgpu_types = _Asker(), _Asker(), _VgpuTypes()
    try:
        gpus: dict[str, NvmlGpu] = {}
        for index in range(driver.ask("device count", pynvml.nvmlDeviceGetCount) or 0):
            device = single.ask(f"device {index}", partial(pynvml.nvmlDeviceGetHandleByIndex, index))
            place = None if device is None else _place(single, index, device)
            if place is not None:
                address, board = place
                gpus[address] = _gpu(device, board, vgpu_types)
        version = driver.ask("driver version", lambda: str(pynvml.nvmlSystemGetDriverVersion()))
    finally:
        single.ask("end", pynvml.nvmlShutdown)
    return NvmlReading(
        driver_version=version, gpus=gpus, problems=tuple(driver.problems), unplaced=tuple(single.problems)
    )


def _place(asker: _Asker, index: int, device: Any) -> tuple[str, tuple[int, int]] | None:
    """PCI address, and the numbers of its board."""
    info = asker.ask(f"PCI address of device {index}", lambda: pynvml.nvmlDeviceGetPciInfo(device))
    if info is None:
        return None
    text = info.busId.decode(errors="replace") if isinstance(info.busId, bytes) else str(info.busId)
    try:
        return parse_pci_address(text), (info.pciDeviceId, info.pciSubSystemId)
    except InvalidInput:
        asker.problems.append(f"NVML device {index} has the unreadable PCI address {text!a}")
        return None


def type_names(reading: NvmlReading) -> dict[int, str]:
    return {vgpu_type.type_id: vgpu_type.name for gpu in reading.gpus.values() for vgpu_type in gpu.types}


@contextmanager
def opened() -> Iterator[None]:
    """NVML, closed again whatever happens. :raises pynvml.NVMLError: the driver does not answer"""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class Nvml:
    """NVML for the whole agent. Opened for each reading and closed again: an open client keeps NVIDIA's
    sriov-manage from getting its unbind lock."""

    def __init__(self) -> None:
        self._gate = Gate("NVML", limit_s=_READ_SECONDS, most_hanging=1)
        self._lock = threading.Lock()
        self._type_names: dict[int, str] = {}

    def read(self) -> NvmlReading:
        """Never raises: no driver, or one that hangs, is a reading with problems."""
        with self._lock:
            try:
                reading = self._gate.call(_read_all)
            except (CallHangs, TooManyHungCalls) as error:
                return NvmlReading(problems=(f"the NVIDIA driver does not answer: {error}",))
            self._type_names = type_names(reading)
            return reading

    def cards(self) -> tuple[GpuCard, ...]:
        """Those that say which they are."""
        return tuple(
            GpuCard(address=address, uuid=gpu.uuid, serial=gpu.serial)
            for address, gpu in self.read().gpus.items()
            if gpu.uuid
        )

    def type_names(self) -> dict[int, str]:
        """Ids and names of vGPU types as last read; an id means the same type on every GPU of one driver."""
        return self._type_names or type_names(self.read())

    def change(self, function: Callable[[], T]) -> T:
        """Call what changes something, with NVML open for it alone.

        :raises pynvml.NVMLError: the driver refuses
        :raises Unknown: ``gpu.mig_hung``
        """

        def call() -> T:
            with opened():
                return function()

        with self._lock:
            try:
                return self._gate.call(call, limit_s=_CHANGE_SECONDS)
            except (CallHangs, TooManyHungCalls) as error:
                raise Unknown(
                    "gpu.mig_hung",
                    "the NVIDIA driver has not come back from a change of GPU instances",
                    hint="look at the host's kernel log",
                    details=str(error),
                ) from error

    def persistence(self, gpu: str) -> bool:
        try:
            return bool(self.change(lambda: pynvml.nvmlDeviceGetPersistenceMode(device_at(gpu))))
        except pynvml.NVMLError:
            return False

    def set_persistence(self, gpu: str, *, on: bool) -> None:
        try:
            self.change(lambda: pynvml.nvmlDeviceSetPersistenceMode(device_at(gpu), int(on)))
        except pynvml.NVMLError as error:
            raise Fatal(
                "gpu.persistence_refused",
                f"the driver does not switch persistence mode of GPU {gpu} {'on' if on else 'off'}",
                hint=f"try it by hand: nvidia-smi -i {gpu} -pm {int(on)}",
                details=f"NVML: {error}",
            ) from error

    def set_modes(self, gpu: str, *, ecc: bool | None, mig: bool | None) -> bool:
        try:
            return self.change(lambda: set_modes(gpu, ecc=ecc, mig=mig))
        except pynvml.NVMLError as error:
            raise Fatal(
                "gpu.modes_refused",
                f"the driver does not set ECC and MIG mode of GPU {gpu} as they were before its VM",
                hint="read the NVRM lines of the host's kernel log",
                details=f"NVML: {error}",
            ) from error

    def processes(self, gpu: str) -> tuple[int, ...]:
        def running() -> tuple[int, ...]:
            device, pids = device_at(gpu), list[int]()
            for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
                with suppress(pynvml.NVMLError):  # a board that draws nothing still says what computes there
                    pids += (process.pid for process in ask(device))
            return tuple(pids)

        try:
            return self.change(running)
        except pynvml.NVMLError:
            return ()

    @contextmanager
    def alone(self, *, within_s: float) -> Iterator[bool]:
        """Whether nobody else of the agent uses NVML, or keeps it closed, while this is held."""
        alone = self._lock.acquire(timeout=within_s)
        try:
            yield alone
        finally:
            if alone:
                self._lock.release()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """While this is held, the agent is no client of NVML."""
        with self._lock:
            yield
