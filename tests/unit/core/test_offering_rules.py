# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.offering_files import facts_about
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.offerings.rules import RULES, OfferingFacts, check_legal

UVM = VgpuParameters(uvm=True)
LIMITED = VgpuParameters(frame_rate_limiter=True)
EQUAL = Scheduler(policy="equal_share", time_slice_ms=2)
FIXED = Scheduler(policy="fixed_share")
BEST = Scheduler(policy="best_effort")
DC = "NVIDIA RTX Pro 6000 Blackwell DC"
H100 = ("H100 SXM5 80GB",)

LEGAL = {
    "a fraction of a GPU": Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2Q"),
    "unified memory on a whole GPU": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-48C", parameters=UVM
    ),
    "unified memory in a GPU instance": Offering(
        name="x", kind="mig_backed", vgpu_type="NVIDIA H100-1-10C", parameters=UVM
    ),
    "fixed share among equal sizes": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q", scheduler=FIXED
    ),
    "equal share among mixed sizes": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q", scheduler=EQUAL, mixed_sizes=True
    ),
    "the limiter under best effort": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q", scheduler=BEST, parameters=LIMITED
    ),
    "graphics in a graphics instance": Offering(
        name="x", kind="mig_backed", vgpu_type=f"{DC}-1-24Q", mig_profile="1g.24gb+gfx"
    ),
    "a scheduler inside a shared GPU instance": Offering(
        name="x", kind="mig_backed", vgpu_type=f"{DC}-1-6Q", scheduler=EQUAL
    ),
    "mixed sizes inside a shared GPU instance": Offering(
        name="x", kind="mig_backed", vgpu_type=f"{DC}-1-6Q", mixed_sizes=True
    ),
    "two halves of a GPU with virtual functions": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-24C", vgpu_count=2
    ),
    "two halves of a Volta": Offering(name="x", kind="time_sliced", vgpu_type="GRID V100-8Q", vgpu_count=2),
    "two whole Pascals": Offering(name="x", kind="time_sliced", vgpu_type="GRID P40-24C", vgpu_count=2),
    "two MIG-backed ones": Offering(name="x", kind="mig_backed", vgpu_type="GRID A100D-3-40C", vgpu_count=2),
    "sixteen of a type that no table has": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA Z1-16Q", vgpu_count=16
    ),
    "a partition of a baseboard": Offering(name="x", kind="passthrough", gpu_count=4, gpu_models=H100),
    "three GPUs without a baseboard": Offering(name="x", kind="passthrough", gpu_count=3, gpu_models=("L40S",)),
    "disks with limits": Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", disk_bytes_per_s=2**20, disk_iops=10, disk_iops_max=10
    ),
    "any GPU instance of a size": Offering(name="x", kind="mig", mig_profile="2g.20gb"),
    "a type that no table knows": Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA Z9-8C", parameters=UVM, mixed_sizes=True
    ),
}  # fmt: skip

FORBIDDEN: list[tuple[str, Offering]] = [
    ("memory.not_whole_pages", Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", hugepages="1G", memory="4.5GiB")),
    ("disk_limits.range", Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", disk_iops=9)),
    ("disk_limits.range", Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", disk_bytes_per_s=-1)),
    ("disk_limits.range", Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", disk_iops_max=100)),
    ("disk_limits.range", Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", disk_iops=200, disk_iops_max=100)),
    ("provision.role_unknown", Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", provision=("guest_nobody_knows",)
    )),
    ("uvm.fractional_time_sliced", Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-24C", parameters=UVM)),
    ("uvm.series", Offering(name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-48Q", parameters=UVM)),
    ("scheduler.fixed_share_mixed_sizes", Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q", scheduler=FIXED, mixed_sizes=True)),
    ("scheduler.time_slice_best_effort", Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q",
        scheduler=Scheduler(policy="best_effort", time_slice_ms=2))),
    ("scheduler.time_slice_range", Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q",
        scheduler=Scheduler(policy="equal_share", time_slice_ms=31))),
    ("scheduler.passthrough", Offering(name="x", kind="passthrough", gpu_count=1, scheduler=BEST)),
    ("scheduler.one_per_instance", Offering(
        name="x", kind="mig_backed", vgpu_type="NVIDIA H100-1-10C", scheduler=EQUAL)),
    ("scheduler.one_per_instance", Offering(name="x", kind="mig", mig_profile="1g.10gb", scheduler=EQUAL)),
    ("scheduler.architecture", Offering(name="x", kind="time_sliced", vgpu_type="GRID M60-2Q", scheduler=EQUAL)),
    ("frame_rate_limiter.policy", Offering(
        name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", scheduler=EQUAL, parameters=LIMITED)),
    ("mixed_sizes.unsupported", Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", mixed_sizes=True)),
    ("mixed_sizes.unsupported", Offering(
        name="x", kind="mig_backed", vgpu_type="NVIDIA H100-1-10C", mixed_sizes=True)),
    ("mixed_sizes.unsupported", Offering(name="x", kind="passthrough", gpu_count=1, mixed_sizes=True)),
    ("mig.no_vgpu", Offering(name="x", kind="mig", mig_profile="1g.24gb-me",
                             gpu_models=("RTX PRO 6000 Blackwell Server Edition",))),
    ("vgpu_count.unsupported", Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2B", vgpu_count=2)),
    ("vgpu_count.unsupported", Offering(name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-48A", vgpu_count=2)),
    ("vgpu_count.unsupported", Offering(name="x", kind="time_sliced", vgpu_type="NVIDIA A10-3B", vgpu_count=2)),
    ("vgpu_count.unsupported", Offering(name="x", kind="time_sliced", vgpu_type="GRID P40-12C", vgpu_count=2)),
    ("vgpu_count.unsupported", Offering(name="x", kind="time_sliced", vgpu_type="GRID M60-4Q", vgpu_count=2)),
    ("vgpu_count.unsupported", Offering(name="x", kind="mig", mig_profile="2g.20gb", vgpu_count=2)),
    ("migratable.blocked", Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-48Q", vgpu_count=2, migratable=True)),
    ("vgpu_count.unsupported", Offering(name="x", kind="passthrough", gpu_count=2, vgpu_count=2)),
    ("parameters.passthrough", Offering(name="x", kind="passthrough", gpu_count=1, parameters=UVM)),
    ("gpu_count.fabric", Offering(name="x", kind="passthrough", gpu_count=3, gpu_models=H100)),
    ("gpu_count.range", Offering(name="x", kind="passthrough", gpu_count=17)),
    ("migratable.blocked", Offering(name="x", kind="passthrough", gpu_count=1, migratable=True)),
    ("migratable.blocked", Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-48Q", nic="rdma", migratable=True)),
    ("migratable.blocked", Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-48C", parameters=UVM, migratable=True)),
    ("gpu_models.offer_nothing_of_it", Offering(
        name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-12Q", gpu_models=("Tesla T4",))),
    ("gpu_models.offer_nothing_of_it", Offering(name="x", kind="mig", mig_profile="1g.5gb", gpu_models=H100)),
    ("kind.type_mode", Offering(name="x", kind="time_sliced", vgpu_type="NVIDIA H100-1-10C")),
    ("kind.field_missing", Offering(name="x", kind="mig")),
    ("kind.field_foreign", Offering(name="x", kind="time_sliced", vgpu_type="GRID T4-2Q", gpu_count=1)),
]  # fmt: skip


def broken_rules(offering: Offering) -> list[str]:
    return [violation.rule for violation in check_legal(offering, facts_about(offering, shipped()))]


@pytest.mark.parametrize("case", LEGAL)
def test_a_combination_that_works_is_legal(case: str) -> None:
    assert broken_rules(LEGAL[case]) == []


@pytest.mark.parametrize("rule, offering", FORBIDDEN)
def test_a_forbidden_combination_is_refused_by_exactly_its_rule(rule: str, offering: Offering) -> None:
    assert broken_rules(offering) == [rule]


def test_a_graphics_type_on_a_compute_only_profile_breaks_both_rules_about_profiles() -> None:
    offering = Offering(name="x", kind="mig_backed", vgpu_type=f"{DC}-1-24Q", mig_profile="1g.24gb")
    assert broken_rules(offering) == ["mig.graphics_on_compute_profile", "mig.profile_of_type"]


def test_a_violation_points_at_the_field_to_change() -> None:
    offering = Offering(name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-24C", parameters=UVM)
    (violation,) = check_legal(offering, facts_about(offering, shipped()))
    assert violation.field == "parameters.uvm"
    assert "NVIDIA L40S-24C" in violation.message


def test_every_rule_is_broken_by_some_case() -> None:
    cases = [offering for _, offering in FORBIDDEN]
    cases.append(Offering(name="x", kind="mig_backed", vgpu_type=f"{DC}-1-24Q", mig_profile="1g.24gb"))
    for rule in RULES:
        assert any(list(rule(offering, facts_about(offering, shipped()))) for offering in cases), rule.__name__


def test_without_facts_only_the_offering_itself_is_judged() -> None:
    offering = Offering(name="x", kind="time_sliced", vgpu_type="NVIDIA L40S-24C", parameters=UVM)
    assert check_legal(offering, OfferingFacts()) == ()
