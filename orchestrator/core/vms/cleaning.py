# SPDX-License-Identifier: Apache-2.0
"""What a VM leaves on a GPU when its claim ends: how each piece was cleaned before another tenant may have it.

What drivers and kernels clear themselves, and why that is enough, is in docs/decisions/cleanings.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.core.actions.host_actions import AgentCleaned
from orchestrator.core.attachments import observed_on
from orchestrator.core.gpu.device import Device, DeviceKind
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.vm import Vm

Method = Literal[
    "not_made", "absent", "seen_gone", "host_given_up", "vgpu_destroyed", "instance_destroyed", "bus_reset", "flr"
]  # fmt: skip
"""``not_made``: the operation that claimed it was taken back, and nothing of it was or is left on the GPU.
``seen_gone``: an observation showed its GPU without it. ``host_given_up``: nobody has seen it, and nobody gets a place
there: the host is ours no more, and what is on it is observed anew before it could be again."""

_RANKS: Final[tuple[AgentCleaned, ...]] = ("absent", "vgpu_destroyed", "instance_destroyed", "bus_reset", "flr")


def strongest(answers: Iterable[AgentCleaned]) -> AgentCleaned:
    """Of all that removed one device; "" where one of them cannot say."""
    ranks = [_RANKS.index(answer) if answer else -1 for answer in answers]
    return _RANKS[max(ranks)] if ranks and min(ranks) >= 0 else ""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Of one piece of a GPU whose claim has ended."""

    id: int
    """Its number; newer ones have larger ones."""
    host: str
    """Name of the host."""
    gpu: str
    """PCI address."""
    gpu_uuid: str
    """The card; "": it was never reported."""
    device: str
    """UUID of the vGPU, or address of its function or of the whole GPU."""
    kind: DeviceKind
    """How it reached its VM."""
    type_name: str
    """Name of its vGPU type, or how types of the whole GPU's board begin."""
    slots: tuple[int, ...]
    """Of the GPU, which the claim had."""
    tenant: str
    """Whose VM had it."""
    vm: str
    """Id of the VM."""
    vm_name: str
    """Its name then."""
    operation: str | None
    """Id of the operation that ended the claim; None: none did."""
    ended_at: float
    """When the claim ended."""
    cleaned_at: float | None
    """When it was known to be clean, or its host was given up; None: it is not known, and nobody gets a part of the
    GPU."""
    method: Method | None
    """How; None with ``cleaned_at``."""
    health: str
    """The GPU's state when the claim ended."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a VM's devices in the transaction that ends its claim."""

    at: float
    """Now, in seconds since the epoch, UTC."""
    operation: str | None = None
    vm: str | None = None
    """Id of the VM, where the claim is that of a place that was held for it."""
    methods: Mapping[str, Method | None] = field(default_factory=dict)
    """By host and device, as :func:`key_of` names them; None: whoever removed it cannot say."""
    otherwise: Method | None = None
    """Of devices that ``methods`` has not; None: nobody knows."""


def key_of(host: str, device: Device) -> str:
    """Functions of two hosts have the same addresses, and a VM that moves has one on each; one that becomes another
    size has one after the other on the same function."""
    return f"{host} {device.name} {device.type_name}"


def is_gone(cleaning: Cleaning, snapshot: HostSnapshot, vm: Vm | None) -> bool:
    """Whether the host shows the GPU, by its driver, without anything of that VM but what it has there by now. A vGPU
    or GPU instance is there as long as anything of its memory is; a whole GPU that its driver has again was reset
    before (RestoreDriver) or booted with its host. ``vm``: as it is now; None: it is gone."""
    gpu = next((gpu for gpu in snapshot.gpus if gpu.address == cleaning.gpu), None)
    if gpu is None or gpu.problems or snapshot.ledger_lost:
        return False
    has = set[tuple[str, str]]()
    if vm is not None and vm.host == cleaning.host and vm.deallocated is None:  # that has its own end
        has = {(device.name, device.type_name) for device in vm.devices}
    return not any(
        item.owner == cleaning.vm or (item.owner is None and item.device.name == cleaning.device)
        for item in observed_on(gpu)
        if item.owner is None or (item.device.name, item.device.type_name) not in has
    )
