# SPDX-License-Identifier: Apache-2.0
"""The only place where a request is made: out of a VM that is asked for and its offering."""

from __future__ import annotations

from orchestrator.core.geometry.cut import MIXES, CutKind
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.rules import needs_of, nodes
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import Request


def request_for(wanted: Wanted, *, priority: int = 0, now_s: float = 0.0) -> Request:
    """What the engine is asked. ``gpu:N`` counts as one device. The last two are as in :class:`Request`.

    :raises InvalidInput: ``profile.unsupported``: the offering names neither vGPU type, MIG profile nor whole GPUs
    """
    vm, offering, needs = wanted.vm, wanted.offering, needs_of(wanted)
    own_vcpus, huge_mib = nodes.own_of(needs)
    return Request(
        vm_id=wanted.vm_id,
        tenant=vm.tenant,
        profile=wanted.profile,
        count=wanted.count * (1 if offering.kind == "passthrough" else offering.vgpu_count),
        cut_kinds=_cut_kinds(offering),
        gpu_models=offering.gpu_models or wanted.models,
        vcpus=vm.vcpus - own_vcpus,
        memory_mib=vm.memory_mib - huge_mib,
        needs=needs,
        priority=priority,
        now_s=now_s,
    )


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
