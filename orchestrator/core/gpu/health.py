# SPDX-License-Identifier: Apache-2.0
"""What a GPU's driver says of its faults, in the kernel log and over NVML, and what is to be done about them. Pure.

A signal has a meaning: what it concerns, and what helps. Those of Xids are a table, which the catalogue reads; Xid 154
says in its text what helps, and that overrides the Xids before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Scope = Literal["vm", "gpu", "fabric"]
"""``vm``: one VM on the GPU; ``gpu``: all of it; ``fabric``: what joins it to other GPUs."""
Remedy = Literal[
    "none", "several_vms", "watch", "restart_vm", "reset_when_free", "support", "drain_and_reset", "reload_driver",
    "reboot_host",
]  # fmt: skip
"""From the least on. ``several_vms``: as ``watch`` where programs of several VMs met it, else none."""
_REMEDIES: Final[tuple[Remedy, ...]] = get_args(Remedy)
CLOSING_WORDS: Final[Mapping[Remedy, str]] = {
    "drain_and_reset": "it must be reset first",
    "reload_driver": "its driver must be loaded anew first",
    "reboot_host": "its host must be rebooted first",
}
"""Nothing new is put on a GPU before that is done."""
WAS_RESET: Final = "vgpuctl: GPU {gpu} was reset"
"""The agent, or a person, writes it to the kernel log: not every driver tells there of a reset."""
MAX_SIGNALS: Final = 64
"""Of one GPU: the driver has some 180 Xids."""
MAX_TEXT: Final = 200
SEVERAL: Final = 3
"""So many VMs, and programs, must have met an error that is a program's own before it says something of the GPU."""
RECOVERY: Final = "xid-154"
_XID: Final = "xid-"


@dataclass(frozen=True, kw_only=True)
class GpuSignal:
    """One thing that is told of a GPU."""

    name: str
    """``xid-79``, ``sxid-fatal`` and ``aer-fatal`` are of the kernel log; ``memory-…``, ``fabric-…``, ``recovery-…``
    and ``pcie-…`` are states that NVML tells; ``tenant-word`` is said at a VM's deletion; ``functions-closed`` is
    worked out."""
    text: str = ""
    """The rest of the line, as the driver wrote it; data."""
    at: int = 0
    """Seconds since the epoch, UTC, of the newest, told anew at most once an hour; 0: a state, or not told."""
    pids: tuple[int, ...] = ()
    """The first :data:`SEVERAL` different processes of the host that met it in a day: of a vGPU it is its own."""
    function: str = ""
    """PCI address of the one virtual function that it is about; empty: all of the GPU."""

    @property
    def words(self) -> str:
        name = f"Xid {self.name[len(_XID) :]}" if self.name.startswith(_XID) else _STATES.get(self.name, self.name)
        return f"{name}: {self.text}" if self.text else name


@dataclass(frozen=True)
class Meaning:
    scope: Scope
    remedy: Remedy


Maturity = Literal["vendor", "ours", "reported"]
"""Whose reading it is: ``vendor``: NVIDIA publishes the action; ``ours``: it was worked out and is unproven;
``reported``: somebody says so, and nothing has measured it."""


@dataclass(frozen=True)
class HealthRule:
    """One row of the tables."""

    signal: str
    meaning: Meaning
    maturity: Maturity
    source: str
    notes: str


Meanings = Mapping[str, Meaning]
"""By the names of signals; the catalogue reads them."""


@dataclass(frozen=True)
class GpuFault:
    signal: GpuSignal
    scope: Scope
    remedy: Remedy


_UNKNOWN: Final = Meaning("gpu", "support")
MISSING: Final = "gpu-missing"
"""A GPU of ours that is not on the host's bus."""
NOT_JOINED: Final = "fabric-not_joined"
TENANT_WORD: Final = "tenant-word"
FUNCTIONS: Final = "functions-closed"
"""So many virtual functions of one GPU are unfit that it is the GPU."""
_STATES: Final = {
    MISSING: "the GPU is not there",
    "sxid-fatal": "a switch of the fabric has a fatal error",
    "sxid-nonfatal": "a switch of the fabric has an error",
    "aer-fatal": "fatal PCIe errors",
    "aer-nonfatal": "PCIe errors that were not corrected",
    "aer-corrected": "PCIe errors that were corrected",
    "pcie-narrow": "fewer PCIe lanes than it could have",
    "memory-uncorrectable_errors": "uncorrectable memory errors",
    "memory-remap_pending": "a memory row is remapped at the next reset",
    "memory-remap_failed": "a memory row could not be remapped",
    TENANT_WORD: "a tenant's word",
    FUNCTIONS: "several of its virtual functions are out of service",
    NOT_JOINED: "the GPU has not joined its fabric",
    "fabric-failed": "the GPU could not join its fabric",
    "fabric-degraded_bandwidth": "the fabric's bandwidth is degraded",
    "fabric-route_recovery": "the fabric's routes are being recovered",
    "fabric-route_unhealthy": "a route of the fabric is unhealthy",
    "fabric-access_timeout_recovery": "an access over the fabric timed out",
    "fabric-incorrect_configuration": "the fabric's configuration is wrong",
}
_IN_WORDS: Final = {
    "none": Meaning("gpu", "none"),
    "gpu reset required": Meaning("gpu", "drain_and_reset"),
    "node reboot required": Meaning("gpu", "reboot_host"),
    "drain p2p": Meaning("fabric", "drain_and_reset"),
    "drain and reset": Meaning("gpu", "drain_and_reset"),
}
_BY_NUMBER: Final = {
    0: _IN_WORDS["none"],
    1: _IN_WORDS["gpu reset required"],
    2: _IN_WORDS["node reboot required"],
    3: _IN_WORDS["drain p2p"],
    4: _IN_WORDS["drain and reset"],
    5: Meaning("fabric", "support"),
    6: _IN_WORDS["gpu reset required"],
    7: _IN_WORDS["node reboot required"],
}
"""nvml.h, nvmlDeviceGpuRecoveryAction_t: none, GPU reset, node reboot, drain P2P, drain and reset, recover the IMEX
domain, bus reset, system reboot."""
_NOW: Final = re.compile(
    r"recovery action changed from .{1,60}? to (?:0x([0-9a-f]{1,4})\b)? ?\(?([a-z0-9 ]*)\)?", re.ASCII
)


def recovery_of(text: str) -> Meaning | None:
    """What the driver says with Xid 154; of two that contradict each other the one that does more. None: unreadable."""
    match = _NOW.search(text.lower())
    if match is None:
        return None
    advice = (_BY_NUMBER.get(int(match[1], 16)) if match[1] else None, _IN_WORDS.get(match[2].strip()))
    return max((advised for advised in advice if advised is not None), key=lambda one: _rank(one.remedy), default=None)


def is_well_again(signal: GpuSignal) -> bool:
    """The driver says that nothing is to be done any more: all signals before it are over."""
    recovery = recovery_of(signal.text) if signal.name == RECOVERY else None
    return recovery is not None and recovery.remedy == "none"


def faults_of(signals: Sequence[GpuSignal], meanings: Meanings, *, vms: int = 0) -> tuple[GpuFault, ...]:
    """Those that something is to be done about, the worst first. ``signals``: in the order in which they came.
    ``vms``: how many have a place on the GPU."""
    recoveries = [
        number
        for number, signal in enumerate(signals)
        if signal.name == RECOVERY and recovery_of(signal.text) is not None
    ]
    overridden = recoveries[-1] if recoveries else 0
    faults = []
    for number, signal in enumerate(signals):
        meaning = meaning_of(signal, meanings)
        if meaning.remedy == "several_vms":
            met = min(vms, len(signal.pids)) >= SEVERAL
            meaning = Meaning("gpu", "watch" if met else "none")
        late = number >= overridden or meaning.scope == "vm" or not signal.name.startswith(_XID)
        if late and meaning.remedy != "none":
            faults.append(GpuFault(signal, meaning.scope, meaning.remedy))
    return tuple(sorted(faults, key=lambda one: -_rank(one.remedy)))


def closing_fault(faults: Iterable[GpuFault]) -> GpuFault | None:
    """The worst for which nothing new may be put on the GPU."""
    return next((fault for fault in faults if fault.scope == "gpu" and fault.remedy in CLOSING_WORDS), None)


def fabric_fault(faults: Iterable[GpuFault]) -> GpuFault | None:
    """The worst for which the GPU may not be joined to others."""
    return next((fault for fault in faults if fault.scope == "fabric"), None)


def state_of(meaning: Meaning) -> str:
    """The state that it brings a GPU into, for people."""
    if meaning.remedy == "none":
        return "none"
    if meaning.remedy == "several_vms":
        return f"watch, from {SEVERAL} VMs on"
    return "unfit" if meaning.scope == "gpu" and meaning.remedy in CLOSING_WORDS else "watch"


def meaning_of(signal: GpuSignal, meanings: Meanings) -> Meaning:
    """Of one that nobody knows it is the vendor's support that can tell."""
    advised = recovery_of(signal.text) if signal.name == RECOVERY else meanings.get(signal.name)
    return advised or _UNKNOWN


def _rank(remedy: Remedy) -> int:
    return _REMEDIES.index(remedy)
