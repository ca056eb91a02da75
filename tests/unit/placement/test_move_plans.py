# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from orchestrator.core.placement.move_plans import plan_compaction, plan_drain
from orchestrator.core.placement.views import GpuView, HostView, Occupied
from tests.fakes.drawn import drawn_compaction, drawn_drain
from tests.unit.placement.fleets import gpus, host
from tests.unit.placement.golden_text import GOLDEN, assert_golden

FOLDER = GOLDEN.parent / "move_plans"
SIZES = {"4g.40gb": 4, "3g.40gb": 4, "2g.20gb": 2, "1g.10gb": 1}


def held(vm_id: str, profile: str, start: int, *, tenant: str = "t", migratable: bool = True) -> Occupied:
    return Occupied(
        vm_id=vm_id, profile=profile, start=start, size=SIZES.get(profile, 1), tenant=tenant, migratable=migratable,
        vcpus=2, memory_mib=8192, disk_gib=20,
    )  # fmt: skip


def mig(view: GpuView, *occupied: Occupied) -> GpuView:
    return replace(view, cut="mig" if occupied else None, occupied=occupied)


def crowded() -> list[HostView]:
    first, second, third = gpus("H100 SXM5 80GB", 3, "mig")
    source = host("a", (
        mig(first, held("fits", "2g.20gb", 0), held("fixed", "1g.10gb", 2, migratable=False)),
        mig(second, held("pair", "2g.20gb", 0), held("pair", "2g.20gb", 2),
            held("alien", "1g.10gb", 4, tenant="", migratable=False)),
        mig(third, held("big", "4g.40gb", 0)),
    ))  # fmt: skip
    busy, closed = gpus("H100 SXM5 80GB", 2, "mig")
    return [
        source,
        host("b", (mig(busy, held("there", "4g.40gb", 0)),)),
        host("c", (mig(closed),), cordoned=True),
        host("d", gpus("A100 SXM4 80GB", 1, "mig")),
    ]


def test_a_drain_plan_tells_where_vms_go_what_it_costs_and_why_others_stay() -> None:
    hosts = crowded()
    plan = plan_drain(hosts, hosts[0])
    assert [(move.vm_id, move.to_host, move.cost_mib, move.disk_gib) for move in plan.moves] == [
        ("fits", "b", 8192 + 20480, 20)
    ]
    assert {stay.vm_id: stay.reasons[0].code for stay in plan.stays} == {
        "alien": "vm.foreign", "fixed": "vm.not_migratable", "pair": "vm.several_devices",
        "big": "gpu.no_capacity",
    }  # fmt: skip
    assert_golden("drain", drawn_drain(plan, "a", names={"fits": "train"}), folder=FOLDER)


def test_a_vm_with_two_devices_is_never_moved_in_halves() -> None:
    first, second = gpus("H100 SXM5 80GB", 2, "mig")
    source = host("a", (mig(first, held("pair", "1g.10gb", 0), held("pair", "1g.10gb", 1)),))
    hosts = [source, host("b", (mig(second, held("there", "2g.20gb", 0)),))]
    assert plan_drain(hosts, source).moves == ()
    assert plan_compaction(hosts).freed == ("b/g1",)


def test_a_host_without_vms_needs_no_plan_and_the_only_host_has_nowhere_to_move_to() -> None:
    (view,) = gpus("H100 SXM5 80GB", 1, "mig")
    empty, alone = host("a", (view,)), host("a", (mig(view, held("vm", "1g.10gb", 0)),))
    assert drawn_drain(plan_drain([empty], empty), "a", names={}) == "no VM has a GPU of host a\n"
    (stay,) = plan_drain([alone], alone).stays
    assert [reason.code for reason in stay.reasons] == ["host.none"]


def test_a_cordoned_host_can_be_drained_and_takes_nothing_in() -> None:
    first, second = gpus("H100 SXM5 80GB", 2, "mig")
    source = host("a", (mig(first, held("vm", "1g.10gb", 0)),), cordoned=True)
    other = host("b", (mig(second, held("there", "1g.10gb", 0)),))
    assert [move.vm_id for move in plan_drain([source, other], source).moves] == ["vm"]
    assert [move.vm_id for move in plan_drain([source, other], other).moves] == []


def test_a_compaction_plan_names_the_gpus_that_it_frees() -> None:
    views = gpus("H100 SXM5 80GB", 3, "mig")
    hosts = [host(name, (mig(view, held(f"{name}1", "2g.20gb", 0)),)) for name, view in zip("abc", views, strict=True)]
    plan = plan_compaction(hosts)
    assert len(plan.freed) == 2
    assert_golden("compaction", drawn_compaction(plan, names={"a1": "train"}), folder=FOLDER)
    assert drawn_compaction(plan_compaction(hosts[:1]), names={}).startswith("no GPU can be freed")


def test_a_vm_that_cannot_move_does_not_keep_like_gpus_from_being_freed() -> None:
    views = gpus("H100 SXM5 80GB", 3, "mig")
    hosts = [
        host("a", (mig(views[0], held("stays", "4g.40gb", 0), held("too", "1g.10gb", 4)),)),
        host("b", (mig(views[1], held("moves", "1g.10gb", 0)),)),
        host("c", (mig(views[2], held("fixed", "1g.10gb", 0, migratable=False)),)),
    ]
    assert plan_compaction(hosts).freed == ("b/g1",)
