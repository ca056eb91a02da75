# SPDX-License-Identifier: Apache-2.0
"""Which offerings can work at all. Each rule looks at one combination and names itself when it forbids it.

Sources: NVIDIA vGPU and AI Enterprise documentation (unified memory, frame-rate limiter, NVLink, time slice
of 1 to 30 ms), nvml.h (scheduler and heterogeneous mode against MIG), NVIDIA/mig-parted and nvidia-smi
output (graphics profiles of RTX PRO boards), fabric manager partition tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.mig_profile import MigProfile
from orchestrator.core.gpu.model import GpuModel
from orchestrator.core.gpu.vgpu_parameters import VgpuParameters
from orchestrator.core.gpu.vgpu_type import VgpuType
from orchestrator.core.guest.settings import check_roles, check_settings
from orchestrator.core.offerings.offering import Offering, Violation, has_whole_pages
from orchestrator.core.vms.vm import memory_mib

TIME_SLICE_MS = range(1, 31)
FABRIC_COUNTS = (1, 2, 4, 8)
MAX_GPUS = 16
_ONE_IN_A_VM = ("A", "B")
_BEFORE_VOLTA = ("maxwell", "pascal")


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferingFacts:
    """What the tables know of the things an offering names. Empty or None: nothing, so no rule judges it."""

    vgpu_type: VgpuType | None = None
    gpu_models: tuple[GpuModel, ...] = ()
    """The type's model, or those that the offering names."""
    mig_profiles: tuple[MigProfile, ...] = ()
    """Tables' entries for the GPU-instance profile on those models."""
    strangers: tuple[str, ...] = ()
    """Models that the offering names and that the tables list without its vGPU type or GPU-instance profile."""


Rule = Callable[[Offering, OfferingFacts], Iterator[Violation]]


def check_legal(offering: Offering, facts: OfferingFacts) -> tuple[Violation, ...]:
    """Every rule that the offering breaks, in the order of :data:`RULES`; empty: nothing known forbids it."""
    return tuple(violation for rule in RULES for violation in rule(offering, facts))


def _names_what_its_kind_needs(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    needed = {
        "time_sliced": "vgpu_type",
        "mig_backed": "vgpu_type",
        "mig": "mig_profile",
        "passthrough": "gpu_count",
    }[offering.kind]
    allowed = {needed, "mig_profile"} if offering.kind == "mig_backed" else {needed}
    for field in ("vgpu_type", "mig_profile", "gpu_count"):
        given = bool(getattr(offering, field))
        if field == needed and not given:
            yield Violation(rule="kind.field_missing", field=field, message=f"{offering.kind} needs {field}")
        if field not in allowed and given:
            yield Violation(
                rule="kind.field_foreign", field=field, message=f"{offering.kind} has no {field}; leave it out"
            )


def _type_is_of_its_kind(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    vgpu_type = facts.vgpu_type
    if vgpu_type is not None and offering.kind in ("time_sliced", "mig_backed") and vgpu_type.mode != offering.kind:
        yield Violation(
            rule="kind.type_mode",
            field="vgpu_type",
            message=f"{vgpu_type.name} is {vgpu_type.mode}, the offering says {offering.kind}",
        )


def _models_offer_what_it_gives(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    if facts.strangers:
        yield Violation(
            rule="gpu_models.offer_nothing_of_it",
            field="gpu_models",
            message=f"{', '.join(facts.strangers[:3])} cannot give {offering.vgpu_type or offering.mig_profile}",
        )


def _uvm_has_memory_of_its_own(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    vgpu_type = facts.vgpu_type
    if not offering.parameters.uvm or vgpu_type is None or vgpu_type.mode != "time_sliced":
        return
    if not vgpu_type.is_full_size:
        yield Violation(
            rule="uvm.fractional_time_sliced",
            field="parameters.uvm",
            message=f"unified memory works on full-size time-sliced types and MIG-backed ones; "
            f"{vgpu_type.name} is a part of a GPU",
        )
    elif vgpu_type.series != "C":
        yield Violation(
            rule="uvm.series",
            field="parameters.uvm",
            message=f"of time-sliced types only the C series has unified memory; {vgpu_type.name} is not",
        )


def _scheduler_can_be_set(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    scheduler, vgpu_type = offering.scheduler, facts.vgpu_type
    if scheduler is None:
        return
    if offering.kind == "passthrough":
        yield Violation(
            rule="scheduler.passthrough",
            field="scheduler",
            message="a GPU that is passed through is not time-sliced by the host",
        )
    if offering.kind == "mig" or (vgpu_type is not None and vgpu_type.max_per_gi == 1):
        yield Violation(
            rule="scheduler.one_per_instance",
            field="scheduler",
            message="the GPU instance carries one vGPU, so there is nothing to schedule and the driver refuses it",
        )
    if any(model.architecture == "maxwell" for model in facts.gpu_models):
        yield Violation(
            rule="scheduler.architecture",
            field="scheduler",
            message="schedulers other than the built-in one exist from Pascal on",
        )


def _time_slice_fits_policy(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    scheduler = offering.scheduler
    if scheduler is None or scheduler.time_slice_ms is None:
        return
    if scheduler.policy == "best_effort":
        yield Violation(
            rule="scheduler.time_slice_best_effort",
            field="scheduler.time_slice_ms",
            message="best effort has no fixed time slice; use equal_share or fixed_share, or leave it out",
        )
    if scheduler.time_slice_ms not in TIME_SLICE_MS:
        yield Violation(
            rule="scheduler.time_slice_range",
            field="scheduler.time_slice_ms",
            message=f"a time slice is {TIME_SLICE_MS[0]} to {TIME_SLICE_MS[-1]} ms",
        )


def _limiter_needs_best_effort(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    scheduler = offering.scheduler
    if offering.parameters.frame_rate_limiter and scheduler is not None and scheduler.policy != "best_effort":
        yield Violation(
            rule="frame_rate_limiter.policy",
            field="parameters.frame_rate_limiter",
            message=f"the driver turns the frame-rate limiter off under {scheduler.policy}",
        )


def _fixed_share_needs_one_size(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    if offering.mixed_sizes and offering.scheduler is not None and offering.scheduler.policy == "fixed_share":
        yield Violation(
            rule="scheduler.fixed_share_mixed_sizes",
            field="scheduler.policy",
            message="fixed share gives every vGPU an equal part, which a GPU with mixed sizes does not have",
        )


def _mixed_sizes_are_supported(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    if not offering.mixed_sizes:
        return
    vgpu_type = facts.vgpu_type
    if offering.kind in ("mig", "passthrough"):
        message = f"{offering.kind} gives a VM the whole of what it takes; sizes cannot be mixed in it"
    elif any(model.has_no_functions for model in facts.gpu_models):
        message = "mixed sizes need a GPU with virtual functions (Ampere and later)"
    elif vgpu_type is not None and vgpu_type.max_per_gi == 1:
        message = "a GPU in MIG mode has no mixed sizes, and its GPU instance carries one vGPU"
    elif vgpu_type is not None and vgpu_type.mode == "time_sliced" and vgpu_type.placement_ids == ():
        message = f"no placement of {vgpu_type.name} among other sizes is known"
    else:
        return
    yield Violation(rule="mixed_sizes.unsupported", field="mixed_sizes", message=message)


def _graphics_need_a_graphics_instance(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    vgpu_type = facts.vgpu_type
    profile = offering.mig_profile or (vgpu_type.gi_profile if vgpu_type else None)
    if vgpu_type is None or vgpu_type.mode != "mig_backed" or profile is None:
        return
    if vgpu_type.series in ("A", "B", "Q") and not profile.endswith("+gfx"):
        yield Violation(
            rule="mig.graphics_on_compute_profile",
            field="mig_profile" if offering.mig_profile else "vgpu_type",
            message=f"{vgpu_type.name} draws; {profile} can only compute (graphics need a +gfx profile)",
        )


def _type_sits_on_its_profile(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    vgpu_type = facts.vgpu_type
    if vgpu_type is None or offering.kind != "mig_backed" or not offering.mig_profile:
        return
    if vgpu_type.gi_profile is not None and vgpu_type.gi_profile != offering.mig_profile:
        yield Violation(
            rule="mig.profile_of_type",
            field="mig_profile",
            message=f"{vgpu_type.name} lives on {vgpu_type.gi_profile} only",
        )


def _profile_backs_vgpus(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    profiles = facts.mig_profiles
    if offering.kind == "mig" and profiles and all(p.backs_vgpu is False for p in profiles):
        yield Violation(
            rule="mig.no_vgpu",
            field="mig_profile",
            message=f"a VM reaches a GPU instance through a vGPU, and {offering.mig_profile} backs none",
        )


def _several_vgpus_in_one_vm(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    if offering.vgpu_count == 1:
        return
    vgpu_type = facts.vgpu_type
    if offering.kind in ("mig", "passthrough"):
        message = f"{offering.kind} has no vGPU type to give several of"
    elif vgpu_type is not None and vgpu_type.multi_vgpu is not True and vgpu_type.series in _ONE_IN_A_VM:
        message = f"several vGPUs in one VM are of the Q or C series; {vgpu_type.name} is not"
    elif vgpu_type is not None and _is_old_part(vgpu_type, facts):
        message = f"before Volta a VM has several vGPUs of whole GPUs only; {vgpu_type.name} is a part of one"
    elif vgpu_type is not None and vgpu_type.multi_vgpu is False:
        message = f"the driver allows one {vgpu_type.name} per VM"
    else:
        return
    yield Violation(rule="vgpu_count.unsupported", field="vgpu_count", message=message)


def _is_old_part(vgpu_type: VgpuType, facts: OfferingFacts) -> bool:
    return not vgpu_type.is_full_size and any(model.architecture in _BEFORE_VOLTA for model in facts.gpu_models)


def _whole_gpus_have_no_plugin(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    if offering.kind == "passthrough" and offering.parameters != VgpuParameters():
        yield Violation(
            rule="parameters.passthrough",
            field="parameters",
            message="vGPU parameters mean nothing to a GPU that is passed through",
        )


def _gpu_count_is_a_partition(offering: Offering, facts: OfferingFacts) -> Iterator[Violation]:
    if offering.kind != "passthrough":
        return
    if not 1 <= offering.gpu_count <= MAX_GPUS:
        yield Violation(
            rule="gpu_count.range", field="gpu_count", message=f"between 1 and {MAX_GPUS} GPUs fit in one VM"
        )
    boards = sorted({model.baseboard for model in facts.gpu_models if model.baseboard})
    if boards and offering.gpu_count not in FABRIC_COUNTS:
        yield Violation(
            rule="gpu_count.fabric",
            field="gpu_count",
            message=f"{', '.join(boards)} has partitions of 1, 2, 4 and 8 GPUs, none of {offering.gpu_count}",
        )


def _migration_is_possible(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    if not offering.migratable:
        return
    blockers = {
        "passthrough": offering.kind == "passthrough",
        "unified memory": offering.parameters.uvm,
        "debugging": offering.parameters.debugging,
        "profiling": offering.parameters.profiling,
        "several vGPUs": offering.vgpu_count > 1,
        "a network function": offering.nic is not None,
    }
    blocking = [name for name, blocks in blockers.items() if blocks]
    if blocking:
        yield Violation(
            rule="migratable.blocked",
            field="migratable",
            message=f"live migration is ruled out by {', '.join(blocking)}",
        )


def _memory_is_whole_pages(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    if offering.memory is not None and not has_whole_pages(offering, memory_mib(offering.memory)):
        yield Violation(
            rule="memory.not_whole_pages",
            field="memory",
            message=f"{offering.memory} are not whole huge pages of {offering.hugepages}",
        )


def _disk_limits_can_be_kept(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    problem = None if offering.disk_limits is None else offering.disk_limits.problem
    if problem is not None:
        yield Violation(rule="disk_limits.range", field=f"disk_{problem[0]}", message=problem[1])


def _roles_can_be_run(offering: Offering, _: OfferingFacts) -> Iterator[Violation]:
    try:
        roles = check_roles(offering.provision) if offering.provision else ()
    except InvalidInput as error:
        message = ", ".join(filter(None, (error.message, error.hint)))
        yield Violation(rule="provision.role_unknown", field="provision", message=message)
        return
    try:
        check_settings(roles, offering.provision_settings)
    except InvalidInput as error:
        message = ", ".join(filter(None, (error.message, error.hint)))
        yield Violation(rule="provision.setting", field="provision_settings", message=message)


RULES: tuple[Rule, ...] = (
    _names_what_its_kind_needs,
    _type_is_of_its_kind,
    _models_offer_what_it_gives,
    _uvm_has_memory_of_its_own,
    _scheduler_can_be_set,
    _time_slice_fits_policy,
    _limiter_needs_best_effort,
    _fixed_share_needs_one_size,
    _mixed_sizes_are_supported,
    _graphics_need_a_graphics_instance,
    _type_sits_on_its_profile,
    _profile_backs_vgpus,
    _several_vgpus_in_one_vm,
    _whole_gpus_have_no_plugin,
    _gpu_count_is_a_partition,
    _migration_is_possible,
    _memory_is_whole_pages,
    _disk_limits_can_be_kept,
    _roles_can_be_run,
)
