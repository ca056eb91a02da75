# SPDX-License-Identifier: Apache-2.0
"""GPUs whose driver says that something is wrong with them, and the VMs that this concerns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.core.diff.finding import ExpectedHost, Finding, Severity, host_finding, vm_finding
from orchestrator.core.gpu.health import (
    GpuFault,
    GpuSignal,
    Meanings,
    Remedy,
    Scope,
    closing_fault,
    faults_of,
)
from orchestrator.core.gpu.health_states import CLOSED, counting
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.core.vms.lease import DAY_S
from orchestrator.core.vms.vm import Vm

GPU_FAULT: Final = "vm.gpu_fault"
"""Code of what VMs are told."""
_SHOWN: Final = 3
_RESET: Final = "{stop}'vgpuctl health reset {host} {gpu}'"
_CLOSED: Final = "nothing new is put on it"
_SPARED: Final = "new VMs are put on it, last, as the breaker is open ('vgpuctl health show')"
_TO_DO: Final[Mapping[Remedy, str]] = {
    "watch": "it serves on and is placed on last; look at it once no VM is on it; on it: {vms}",
    "drain_and_reset": _CLOSED + "; " + _RESET,
    "reload_driver": _CLOSED + "; stop the VMs with GPUs of {host}, then load its driver anew there, or "
    "reboot it; on it: {vms}",
    "reboot_host": _CLOSED + "; 'vgpuctl host cordon {host}', stop its VMs, reboot it; on the GPU: {vms}",
    "reset_when_free": "it serves on; the next reset puts it right: " + _RESET,
    "support": "it serves on; nvidia-bug-report.sh on {host} collects what NVIDIA's support asks for; on it: {vms}",
    "restart_vm": "the others on it go on; it is of one of {vms}: the one whose programs failed is restarted",
}
_FUNCTION: Final = (
    "no new vGPU is put on that virtual function, the rest of its GPU is given out; {stop}a reset of the GPU puts it "
    "right"
)
_SERVES: Final = "that virtual function serves on; on it: {vms}"
_OF_FUNCTION: Final = "save what can be saved, then stop it and start it again: it gets another part of the GPU"
_FABRIC: Final = "no VM gets it together with other GPUs; journalctl -u nvidia-fabricmanager on {host}; then "
_SWITCH: Final = (
    "stop the VMs with GPUs of {host} and load its driver anew, or reboot it: a GPU's reset resets no switch"
)
_SEVERITY: Final[Mapping[Remedy, Severity]] = {
    "watch": "info",
    "reset_when_free": "info",
    "restart_vm": "info",
    "support": "warning",
}
_OF_VMS: Final[Mapping[Scope, tuple[str, str]]] = {
    "gpu": (
        "its GPU has a fault, and what is computed there may be wrong",
        "save what can be saved and stop it: whoever runs the pool mends the GPU once no VM is on it",
    ),
    "fabric": (
        "the links between its GPUs have a fault",
        "what its GPUs exchange may fail: whoever runs the pool mends that once the VM is stopped",
    ),
    "vm": ("its GPU met an error that was the VM's alone", "restart the programs that failed, or the VM"),
}


def health_findings(wanted: ExpectedHost, snapshot: HostSnapshot, meanings: Meanings, now: float) -> Iterator[Finding]:
    """For each GPU of ours at most one of itself and one of its links, one for each of its virtual functions, and at
    most one for each VM. ``now``: seconds since the epoch."""
    of_vms: dict[str, Finding] = {}
    for gpu in snapshot.gpus:
        vms = [item.vm for item in wanted.vms if gpu.address in _gpus_of(item.vm)]
        ours = gpu.address in wanted.host.managed_gpus
        health = wanted.host.health_of(gpu.address)
        own_signals = [signal for signal in gpu.signals if not signal.function]
        faults = counting(_faults(own_signals, meanings, now, len(vms)), health, now) if ours else ()
        names = ", ".join(vm.full_name for vm in vms)
        joined = [item for item in faults if item.scope == "fabric"]
        own = [item for item in faults if item.scope == "gpu" or (item.scope == "vm" and len(vms) > 1)]
        if own:
            to_do = _TO_DO[own[0].remedy]
            if health is not None and health.spared:
                to_do = to_do.replace(_CLOSED, _SPARED)
            yield _of_gpu(wanted.host, "gpu.fault", gpu.address, own, to_do, names)
        if joined:
            of_switch = any(fault.signal.name.startswith("sxid-") for fault in joined)
            to_do = _FABRIC + (_SWITCH if of_switch else _RESET)
            yield _of_gpu(wanted.host, "gpu.fabric_fault", gpu.address, joined, to_do, names)
        for vm in vms:
            fault = _of_vm(vm, faults, alone=len(vms) == 1)
            if fault is not None:
                observed, why = _OF_VMS[fault.scope]
                severity: Severity = "warning" if fault.scope == "vm" else "error"
                finding = vm_finding(vm, GPU_FAULT, severity, ("a GPU without faults", observed), why)
                of_vms.setdefault(vm.id, finding)
        yield from _of_functions(wanted, gpu, meanings, now) if ours else ()
    yield from of_vms.values()


def _of_functions(wanted: ExpectedHost, gpu: GpuSnapshot, meanings: Meanings, now: float) -> Iterator[Finding]:
    """Of those virtual functions that something is said of, and of the VMs that have them."""
    for function in sorted({signal.function for signal in gpu.signals} - {""}):
        health = wanted.host.health_of(function)
        signals = [signal for signal in gpu.signals if signal.function == function]
        faults = counting(_faults(signals, meanings, now, 1), health, now)
        if not faults:
            continue
        vms = [item.vm for item in wanted.vms if item.vm.has_place_on(function)]
        names = ", ".join(vm.full_name for vm in vms)
        closed = health is not None and health.state in CLOSED
        yield _of_gpu(wanted.host, "gpu.fault", function, faults, _FUNCTION if closed else _SERVES, names)
        for vm in vms if closed else ():
            yield vm_finding(vm, GPU_FAULT, "error", ("a GPU without faults", _OF_VMS["gpu"][0]), _OF_FUNCTION)


def _faults(signals: Sequence[GpuSignal], meanings: Meanings, now: float, vms: int) -> list[GpuFault]:
    """Nobody says when a VM has got over an error of its own: that is told of for a day."""
    faults = faults_of(signals, meanings, vms=vms)
    return [fault for fault in faults if fault.scope != "vm" or not fault.signal.at or fault.signal.at + DAY_S > now]


def _gpus_of(vm: Vm) -> set[str]:
    return {device.gpu for device in vm.devices} if vm.deallocated is None else set()


def _of_vm(vm: Vm, faults: Sequence[GpuFault], *, alone: bool) -> GpuFault | None:
    """The worst that concerns the VM. ``alone``: no other is on that GPU."""
    several = len(_gpus_of(vm)) > 1 and all(device.is_whole_gpu for device in vm.devices)
    closing = closing_fault(faults)
    others = (fault for fault in faults if (fault.scope == "fabric" and several) or (fault.scope == "vm" and alone))
    return closing or next(others, None)


def _of_gpu(host: Host, code: str, gpu: str, faults: Sequence[GpuFault], to_do: str, vms: str) -> Finding:
    """Of its faults, the worst first."""
    stop = f"'vgpuctl health empty {host.name} {gpu}' moves {vms} off it, then " if vms else ""
    vms = vms or "no VM"
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    differ = ("a GPU without faults", "; ".join(fault.signal.words for fault in faults[:_SHOWN]) + more)
    why = to_do.format(host=host.name, gpu=gpu, vms=vms, stop=stop)
    return host_finding(host, code, _SEVERITY.get(faults[0].remedy, "error"), differ, why, f"GPU {gpu}")
