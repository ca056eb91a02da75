# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs: taken from their driver for a VM, reset and given back, and observed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.agent.attachments.device_files import DeviceFiles, check_address, check_managed, not_as_seen
from orchestrator.agent.attachments.gpu_record import FunctionBefore, GpuRecord, gpu_key
from orchestrator.agent.attachments.gpu_use import GpuUse, in_use
from orchestrator.agent.attachments.kind import Handlers, Kind, Observation, ObservedKind
from orchestrator.agent.fabric.partitions import FabricPartitions
from orchestrator.agent.nvml.reading import Driver, NvmlGpu
from orchestrator.agent.sysfs import binding, open_files, pci, reading, sriov
from orchestrator.agent.sysfs.binding import VFIO
from orchestrator.agent.sysfs.pci import PciGpu
from orchestrator.core.actions.host_actions import ActionResult, AgentCleaned, BindVfio, RestoreDriver
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown, VgpuctlError
from orchestrator.core.gpu.device import Device, VgpuParent

_NVIDIA = "nvidia"
_NOT_OURS = NvmlGpu(problems=("vfio-pci has it, and we did not give it there",))


class WholeGpus:
    def __init__(self, files: DeviceFiles, driver: Driver, parts: Collection[Kind], fabric: FabricPartitions) -> None:
        """``parts``: the kinds that put parts of a GPU on it, which must not be there."""
        self._files = files
        self._paths = files.paths
        self._ledger = files.ledger
        self._driver = driver
        self._use = GpuUse(files, driver)
        self._parts = parts
        self._fabric = fabric

    @property
    def handlers(self) -> Handlers:
        return {BindVfio: self.take, RestoreDriver: self.give_back, **self._fabric.handlers}

    def take(self, action: BindVfio) -> ActionResult:
        """:raises Conflict: ``gpu.foreign``, ``gpu.in_use``, ``gpu.group_shared``, ``vgpu.foreign``
        :raises Fatal: ``gpu.no_iommu``, ``gpu.no_reset``, ``host.no_vfio``, ``gpu.bind_refused``"""
        self._files.check_managed(action.gpu)
        record = self._record(action.gpu)
        fresh = record is None
        if record is None:
            record = self._written_down(action)
        else:
            self._files.check_owner(gpu_key(action.gpu), action.vm, action.gpu)
        passed = [binding.is_passed_through(self._paths, function.address) for function in record.functions]
        if all(passed):
            return ActionResult(changed=False)
        binding.load_vfio(self._paths)
        self._check_no_parts(action.gpu, record.said)
        with self._unused(action.gpu, record, fresh=fresh):
            if record.had_virtual_functions:
                self._use.unlock(action.gpu)  # sriov-manage takes the lock for itself
                self._switch_functions(action.gpu, "-d", on=False)
                self._use.lock(action.gpu)
            for function in record.functions:
                binding.set_override(self._paths, self._files.write_file, function.address, VFIO)
                binding.move(self._paths, self._files.write_file, function.address, VFIO)
        return ActionResult(changed=True)

    @contextmanager
    def _unused(self, gpu: str, record: GpuRecord, *, fresh: bool) -> Iterator[None]:
        """Nothing uses it through its driver, and nothing can from now on; as before where it is not taken.
        ``fresh``: it was written down just now."""
        if record.persistence and binding.driver_of(self._paths, gpu) == _NVIDIA:
            self._driver.set_persistence(gpu, on=False)
        locked = False
        try:
            with self._driver.closed():
                self._use.lock(gpu)
                locked = True
                yield
        except (Conflict, Fatal, Retryable):
            self._use.unlock(gpu)
            self._persist(gpu, record)
            if fresh and not locked:
                self._ledger.release(gpu_key(gpu))
            raise

    def _persist(self, gpu: str, record: GpuRecord) -> str:
        """Persistence mode as it was; what kept it from that."""
        if not record.persistence or binding.driver_of(self._paths, gpu) != _NVIDIA:
            return ""
        try:
            self._driver.set_persistence(gpu, on=True)
        except VgpuctlError as error:
            return f"persistence mode of GPU {gpu} is off: {error.message}"
        return ""

    def give_back(self, action: RestoreDriver) -> ActionResult:
        """One that is not this VM's, or is nobody's after a reboot, is left as it is; where vfio-pci has it all the
        same, the result says so.

        :raises Conflict: ``vgpu.in_use``
        :raises Fatal: ``gpu.reset_failed``, ``gpu.bind_refused``, ``gpu.modes_refused``"""
        check_address(action.gpu)
        key = gpu_key(action.gpu)
        owner, record = self._ledger.owner(key), self._record(action.gpu)
        if owner is None or record is None or owner.vm != action.vm:
            left = owner is None and binding.is_passed_through(self._paths, action.gpu)
            said = f"vfio-pci keeps GPU {action.gpu}: the ledger does not know who gave it there" if left else ""
            return ActionResult(changed=False, message=said, cleaned="" if left else "absent")
        for function in record.functions:
            self._files.check_unused(self._paths.pci(function.address), function.address)
        self._use.unlock(action.gpu)
        cleaned: AgentCleaned = "absent"
        with self._driver.closed():
            if binding.is_passed_through(self._paths, action.gpu):
                cleaned = binding.reset(self._paths, self._files.write_file, action.gpu)
            for function in reversed(record.functions):
                if binding.is_passed_through(self._paths, function.address):
                    binding.move(self._paths, self._files.write_file, function.address, None)
                binding.set_override(self._paths, self._files.write_file, function.address, function.override)
                if function.probed:
                    binding.probe(self._paths, self._files.write_file, function.address)
                else:
                    binding.move(self._paths, self._files.write_file, function.address, function.driver)
        cleaned = self._put_modes_back(action.gpu, record.said) or cleaned
        if record.had_virtual_functions and self._can_switch(record.functions[0]):
            with self._driver.closed():
                self._switch_functions(action.gpu, "-e", on=True)
        message = self._persist(action.gpu, record)
        self._ledger.release(key)
        return ActionResult(changed=True, message=message, cleaned=cleaned)

    def _put_modes_back(self, gpu: str, before: NvmlGpu | None) -> AgentCleaned:
        """ECC and MIG mode are the board's, and outlive its reset where a guest has set them: as they were before, by
        one reset more. How that went; "": nothing had to be done.

        :raises Fatal: ``gpu.modes_refused``, ``gpu.reset_failed``; :raises Conflict: ``gpu.in_use``"""
        if before is None or binding.driver_of(self._paths, gpu) != _NVIDIA:
            return ""
        ecc, mig = before.ecc, before.mig_enabled
        if not self._driver.set_modes(gpu, ecc=ecc, mig=mig):
            return ""
        with self._driver.closed():
            self._use.lock(gpu)
            binding.move(self._paths, self._files.write_file, gpu, None)
            cleaned = binding.reset(self._paths, self._files.write_file, gpu)
            binding.move(self._paths, self._files.write_file, gpu, _NVIDIA)
        if self._driver.set_modes(gpu, ecc=ecc, mig=mig):
            raise Fatal(
                "gpu.modes_refused",
                f"GPU {gpu} has another ECC or MIG mode than before its VM, also after a reset",
                hint="set it by hand (nvidia-smi -e, -mig), reset the GPU, then retry the operation",
            )
        return cleaned

    def adopt(self, vm: str, device: Device) -> None:
        """One that vfio-pci has. What it was before is not known: it goes back to the driver that the kernel finds,
        with its virtual functions on, as every GPU of ours has them. With the last of a set the fabric partition."""
        check_managed(self._ledger, device.gpu)
        if not binding.is_passed_through(self._paths, device.gpu):
            raise not_as_seen(device.name)
        own = (
            device.gpu,
            *(function for function in pci.own_functions(self._paths, device.gpu) if function != device.gpu),
        )
        passed = (function for function in own if binding.is_passed_through(self._paths, function))
        record = GpuRecord(
            model=device.type_name,
            functions=tuple(
                FunctionBefore(address=function, driver=None, override="", probed=True) for function in passed
            ),
            had_virtual_functions=bool(reading.number(self._paths.pci(device.gpu) / "sriov_totalvfs")),
            said=NvmlGpu(name=device.type_name),
        )
        if self._ledger.owner(gpu_key(device.gpu)) is None:
            self._ledger.claim(gpu_key(device.gpu), vm, detail=record.to_text(), until_reboot=True)
        else:
            self._files.check_owner(gpu_key(device.gpu), vm, device.gpu)
        if device.fabric is not None:
            self._fabric.adopt(vm, device.fabric)

    def release(self, vm: str, device: Device) -> None:
        self._files.release(gpu_key(device.gpu), vm)

    def forget_gone(self, vm: str) -> None:
        """A GPU is its VM's until its driver has it back, and is shown so."""

    def owner_of(self, name: str) -> str | None:
        return self._files.owner_of(gpu_key(name))

    def parameters_file(self, name: str) -> Path | None:
        return None

    def check_may_make(self, name: str) -> None:
        """A GPU's own function is asked about as a virtual one is."""

    def names_on(self, functions: Iterable[str]) -> Iterator[str]:
        return (address for address in functions if binding.is_passed_through(self._paths, address))

    def observe(self, shared: Observation) -> _ObservedGpus:
        return _ObservedGpus(self._files, shared, self._record)

    def _record(self, address: str) -> GpuRecord | None:
        owner = self._ledger.owner(gpu_key(address))
        return None if owner is None else GpuRecord.from_text(owner.detail)

    def _written_down(self, action: BindVfio) -> GpuRecord:
        gpu = action.gpu
        if binding.is_passed_through(self._paths, gpu):
            raise Conflict(
                "gpu.foreign",
                f"vfio-pci has GPU {gpu}, and we did not give it there",
                hint="since boot? take vfio-pci.ids= (or /etc/modprobe.d, driverctl) away and reboot the host: a GPU "
                "goes to vfio-pci when its VM starts",
            )
        self._check_passable(gpu)
        own = (gpu, *(function for function in pci.own_functions(self._paths, gpu) if function != gpu))
        record = GpuRecord(
            model=action.model,
            functions=tuple(self._function_now(address) for address in own),
            had_virtual_functions=bool(reading.number(self._paths.pci(gpu) / "sriov_numvfs")),
            persistence=self._driver.persistence(gpu),
            said=self._driver.read().gpus.get(gpu),
        )
        self._check_no_parts(gpu, record.said)
        self._use.check(gpu, persistence=record.persistence)
        self._ledger.claim(gpu_key(gpu), action.vm, detail=record.to_text(), until_reboot=True)
        return record

    def _function_now(self, address: str) -> FunctionBefore:
        return FunctionBefore(
            address=address,
            driver=binding.driver_of(self._paths, address),
            override=binding.override_of(self._paths, address),
        )

    def _check_passable(self, gpu: str) -> None:
        """Its group is its own, and it can be made as good as new for the next VM."""
        others = pci.iommu_shared_with(self._paths, gpu, pci.virtual_functions(self._paths, gpu))
        if others is None:
            raise Fatal(
                "gpu.no_iommu",
                f"GPU {gpu} is in no IOMMU group, so no VM can have all of it",
                hint="switch the IOMMU on in the firmware and on the kernel's command line (intel_iommu=on)",
            )
        if others:
            raise Conflict(
                "gpu.group_shared",
                f"GPU {gpu} shares its IOMMU group with {', '.join(others)}",
                hint="a VM gets the group whole or not at all: use a slot of its own, or ACS in the firmware",
            )
        if not binding.reset_methods(self._paths, gpu):
            raise Fatal(
                "gpu.no_reset",
                f"the kernel knows no way to reset GPU {gpu}",
                hint="what one VM leaves on it would be the next one's to read",
            )

    def _check_no_parts(self, gpu: str, observed: NvmlGpu | None) -> None:
        functions = (gpu, *pci.virtual_functions(self._paths, gpu))
        parts = sorted({name for kind in self._parts for name in kind.names_on(functions)})
        if observed is not None and observed.mig_enabled:
            parts.append("MIG mode")
        if parts:
            raise in_use(gpu, parts)

    def _can_switch(self, function: FunctionBefore) -> bool:
        """Of a GPU whose driver the kernel was to find, only where it found NVIDIA's."""
        return not function.probed or binding.driver_of(self._paths, function.address) == _NVIDIA

    def _switch_functions(self, gpu: str, option: str, *, on: bool) -> None:
        numvfs = self._paths.pci(gpu) / "sriov_numvfs"
        if bool(reading.number(numvfs)) != on:
            sriov.manage(self._paths, self._files.timing, option, gpu)
        if bool(reading.number(numvfs)) != on:
            raise Unknown("gpu.sriov_failed", f"GPU {gpu} did not take sriov-manage {option}")


class _ObservedGpus(ObservedKind):
    def __init__(self, files: DeviceFiles, shared: Observation, record: Callable[[str], GpuRecord | None]) -> None:
        self._paths, self._ledger, self._shared, self._record = files.paths, files.ledger, shared, record

    def offered_on(self, gpu: PciGpu) -> bool:
        return gpu.driver == VFIO

    def parents(self, gpu: PciGpu, _problems: list[str]) -> tuple[VgpuParent, ...]:
        owner, record = self._ledger.owner(gpu_key(gpu.address)), self._record(gpu.address)
        return (
            VgpuParent.of_whole_gpu(
                gpu.address,
                "unknown" if record is None else record.model,
                owner=None if owner is None else owner.vm,
                in_use=open_files.in_use(self._paths.pci(gpu.address), self._shared.opened),
            ),
        )

    def remembered(self, gpu: PciGpu) -> NvmlGpu | None:
        """Only while the driver does not have it."""
        if gpu.driver != VFIO:
            return None
        record = self._record(gpu.address)
        return _NOT_OURS if record is None else record.said
