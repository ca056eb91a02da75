# SPDX-License-Identifier: Apache-2.0
"""The only place where a request is made: out of a VM that is asked for and its offering."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.geometry.cut import MIXES, CutKind
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.rules import Wants, needs_of
from orchestrator.core.placement.views import Request
from orchestrator.core.units import GIB
from orchestrator.core.vms.isolation import Isolation


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedVm:
    """A VM that somebody asks for or asks about, beside its offering. Names are as in :class:`Request`."""

    vm_id: str
    tenant: str
    vcpus: int
    memory_mib: int
    disk_bytes: int = 0
    """0: its host has the disk already."""
    count: int = 1
    """It has what the offering gives so many times."""
    host: str | None = None
    gpu: str | None = None
    nic: bool = False
    """A function of a network card, whatever the offering says."""
    firmware: Firmware | None = None
    """What it boots by already; None: what the offering says."""
    tpm: bool | None = None
    """A TPM of its own; None: what the offering says."""
    uplinks: tuple[Uplink, ...] = ()
    isolation: Isolation | None = None
    apart_from_vms: tuple[str, ...] = ()
    priority: int = 0
    migratable: bool = False
    now_s: float = 0.0


def request_for(asked: AskedVm, offering: Offering) -> Request:
    """What the engine is asked. ``gpu:N`` counts as one device.

    :raises InvalidInput: ``profile.unsupported``: the offering names neither vGPU type, MIG profile nor whole GPUs
    """
    profile = profile_of(offering)
    pinned, huge = offering.cpu == "pinned", offering.page_kib > 0
    return Request(
        vm_id=asked.vm_id,
        tenant=asked.tenant,
        profile=profile,
        count=asked.count * (1 if offering.kind == "passthrough" else offering.vgpu_count),
        cut_kinds=_cut_kinds(offering),
        gpu_models=offering.gpu_models,
        vcpus=0 if pinned else asked.vcpus,
        pinned=asked.vcpus if pinned else 0,
        numa_strict=offering.numa == "strict",
        memory_mib=0 if huge else asked.memory_mib,
        huge_mib=asked.memory_mib if huge else 0,
        page_kib=offering.page_kib,
        disk_gib=-(-asked.disk_bytes // GIB),
        nic=asked.nic or offering.nic is not None,
        host=asked.host,
        gpu=asked.gpu,
        needs=needs_of(_wants(asked, offering, profile)),
        priority=asked.priority,
        migratable=asked.migratable,
        now_s=asked.now_s,
    )


def _wants(vm: AskedVm, offering: Offering, profile: str) -> Wants:
    return Wants(
        profile=profile,
        tenant=vm.tenant,
        isolation=vm.isolation,
        uplinks=vm.uplinks,
        host_labels=offering.hosts,
        boots_by=vm.firmware or offering.firmware,
        tpm=offering.tpm if vm.tpm is None else vm.tpm,
        scheduler=offering.scheduler,
        apart_from=vm.apart_from_vms,
    )


def profile_of(offering: Offering) -> str:
    """How the engine names what one device of the offering is.

    :raises InvalidInput: ``profile.unsupported``
    """
    if offering.kind == "passthrough":
        return f"gpu:{offering.gpu_count}"
    profile = offering.vgpu_type or offering.mig_profile
    if profile is None:
        raise InvalidInput(
            "profile.unsupported",
            f"profile {offering.name} names no vGPU type or MIG profile",
            hint="'vgpuctl profile list' shows what there is",
        )
    return profile


def _cut_kinds(offering: Offering) -> tuple[CutKind, ...]:
    """An offering that was written down says whether its GPU may hold several sizes. A bare vGPU type goes beside other
    sizes on a GPU that mixes them already, and has none switched for it."""
    if offering.kind in {"mig", "mig_backed"}:
        return ("mig",)
    if offering.kind != "time_sliced":
        return ()
    if not offering.written_down:
        return ("time_sliced", "mixed")
    return MIXES if offering.mixed_sizes else ("time_sliced",)
