# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.advice.outlook import lasting_reason
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place
from orchestrator.core.placement.views import GpuView, HostView, Occupied, Placement, Refusal, Request
from tests.unit.placement.fleets import ask, gpus, having, host, settle

T4 = "Tesla T4"
Q4, Q8 = "GRID T4-4Q", "GRID T4-8Q"


def t4(name: str, cut: str | None = None, *occupied: Occupied, **more: Any) -> HostView:
    (view,) = gpus(T4, 1, "time_sliced")
    made = host(name, (replace(view, cut=cut, occupied=occupied),))
    spent = {name: more.pop(name) for name in {"free_disk_gib", "free_nics", "numa_shared"} & more.keys()}
    return replace(having(made, **spent), **more)


def held(vm_id: str, profile: str, start: int, size: int = 1, tenant: str = "t") -> Occupied:
    return Occupied(vm_id=vm_id, profile=profile, start=start, size=size, tenant=tenant)


def placed(answer: Placement | Refusal) -> Placement:
    assert isinstance(answer, Placement)
    return answer


def codes(answer: Placement | Refusal) -> list[str]:
    assert isinstance(answer, Refusal)
    return [reason.code for reason in answer.reasons]


def test_an_empty_gpu_takes_the_cut_that_the_profile_needs() -> None:
    answer = placed(place(ask("a", Q4), [t4("h1")]))
    assert (answer.host_id, answer.gpu_ids) == ("h1", ("g0",))
    assert [(part.cut, part.slots) for part in answer.parts] == [("time_sliced:4096", (0,))]


def test_a_gpu_in_use_is_filled_before_another_is_opened() -> None:
    hosts = [t4("h1"), t4("h2", "time_sliced:4096", held("x", Q4, 0))]
    answer = placed(place(ask("a", Q4), hosts))
    assert (answer.host_id, answer.parts[0].slots) == ("h2", (1,))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_parts_fill_a_gpu_before_another_of_a_host_that_gives_whole_gpus_is_opened(count: int) -> None:
    engine = PlacementEngine([host("a", gpus("H100 SXM5 80GB", 8, "mig", "time_sliced"), fabric=True)])
    for number in range(count):
        assert settle(engine, ask(f"v{number}", "1g.10gb"))
    assert engine.fleet.active == 1


@pytest.mark.parametrize("name", [None, "a"])
def test_a_set_of_gpus_that_no_board_has_is_refused_with_the_sets_that_it_has(name: str | None) -> None:
    hosts = [host("a", gpus("H100 SXM5 80GB", 8, "mig", "time_sliced"), fabric=True)]
    answer = place(ask("v", "gpu:3", host=name), hosts)
    assert isinstance(answer, Refusal)
    (reason,) = answer.reasons
    assert (reason.code, reason.message) == (
        "profile.unsupported", "its GPUs are given out in sets of 1, 2, 4, 8, not of 3",
    )  # fmt: skip
    lasting = lasting_reason(ask("v", "gpu:3", host=name), hosts, asked="gpu:3", place=name and f"host {name}")
    assert lasting is not None
    who = "host a never gives" if name else "no host of this pool gives"
    assert lasting.message == f"{who} out 3 GPUs together (sets of 1, 2, 4, 8)"


def test_a_gap_between_equal_slots_is_used_first() -> None:
    hosts = [t4("h", "time_sliced:4096", held("x", Q4, 0), held("y", Q4, 2))]
    assert placed(place(ask("a", Q4), hosts)).parts[0].slots == (1,)


def test_mig_instances_claim_their_memory_slots() -> None:
    (view,) = gpus("A100 PCIe 40GB", 1, "mig")
    occupied = (held("x", "1g.5gb", 0),)
    answer = placed(place(ask("a", "3g.20gb"), [host("h", (replace(view, cut="mig", occupied=occupied),))]))
    assert (answer.parts[0].cut, answer.parts[0].start, answer.parts[0].slots) == ("mig", 4, (4, 5, 6, 7))


def test_a_type_backed_by_mig_lies_where_its_instance_lies() -> None:
    answer = placed(place(ask("a", "GRID A100-2-10C"), [host("h", gpus("A100 PCIe 40GB", 1, "mig"))]))
    assert (answer.parts[0].cut, answer.parts[0].size) == ("mig", 2)


def test_whole_gpus_claim_one_slot_of_each_gpu_of_a_partition() -> None:
    views = gpus("H100 SXM5 80GB", 8, "mig")
    busy = replace(views[0], cut="whole", occupied=(held("x", "gpu:1", 0),))
    answer = placed(place(ask("a", "gpu:4"), [host("h", (busy, *views[1:]), fabric=True)]))
    assert answer.gpu_ids == ("g4", "g5", "g6", "g7")
    assert {(part.cut, part.slots) for part in answer.parts} == {("whole", (0,))}


def test_several_devices_go_to_one_host() -> None:
    hosts = [host("small", gpus("L40S", 1, "time_sliced")), host("big", gpus("L40S", 4, "time_sliced"))]
    answer = placed(place(ask("a", "NVIDIA L40S-48Q", count=3), hosts))
    assert answer.host_id == "big"
    assert len(set(answer.gpu_ids)) == 3


def test_devices_that_fit_no_single_host_are_refused_with_that_reason() -> None:
    hosts = [host(name, gpus("L40S", 2, "time_sliced")) for name in ("a", "b")]
    assert codes(place(ask("v", "NVIDIA L40S-48Q", count=3), hosts)) == ["host.devices"]


@pytest.mark.parametrize(
    "change, wish, code",
    [
        ({"free_vcpus": 1}, {"vcpus": 2}, "host.vcpus"),
        ({"free_memory_mib": 512}, {}, "host.memory"),
        ({"free_disk_gib": 5}, {"disk_gib": 6}, "host.disk"),
        ({"cordoned": True, "reason": "being upgraded"}, {}, "host.not_ready"),
        ({"cordoned": True}, {}, "host.cordoned"),
        ({"free_nics": (("0000:05:00.0", 1),)}, {"nic": True}, "host.no_nic"),
        ({"vms": frozenset({"other"})}, {"apart_from_vms": ("other",)}, "host.anti_affinity"),
        ({"numa_shared": ((0, 1),)}, {"numa_strict": True, "vcpus": 2}, "host.numa"),
        ({}, {"host": "elsewhere"}, "host.other"),
        ({}, {"profile": "NVIDIA L4-4Q"}, "profile.unsupported"),
    ],
)
def test_each_rule_refuses_with_its_own_code(change: dict[str, Any], wish: dict[str, Any], code: str) -> None:
    fine = ask("a", Q4)
    assert placed(place(fine, [t4("h")]))
    answer = place(ask("a", **{"profile": Q4, **wish}), [t4("h", **change)])
    assert codes(answer) == [code]


def test_full_and_other_sized_gpus_are_told_apart() -> None:
    full = t4("full", "time_sliced:8192", held("a", Q8, 0), held("b", Q8, 1))
    other = t4("other", "time_sliced:4096", held("c", Q4, 0))
    assert sorted(codes(place(ask("v", Q8), [full, other]))) == ["gpu.no_capacity", "gpu.other_size_in_use"]


def test_claims_that_the_driver_no_longer_offers_keep_the_gpu_out() -> None:
    strange = t4("h", "time_sliced:1", held("x", "GRID T4-old", 0))
    assert codes(place(ask("a", Q4), [strange])) == ["gpu.unusable"]


def test_overlapping_claims_keep_the_gpu_out() -> None:
    (view,) = gpus("A100 PCIe 40GB", 1, "mig")
    occupied = (held("x", "3g.20gb", 0, 4), held("y", "1g.5gb", 2))
    assert codes(place(ask("a", "1g.5gb"), [host("h", (replace(view, cut="mig", occupied=occupied),))])) == [
        "gpu.unusable"
    ]


def test_no_hosts_is_a_reason_too() -> None:
    assert codes(place(ask("a", Q4), [])) == ["host.none"]


def test_hosts_are_grouped_by_reason_with_the_biggest_group_first() -> None:
    hosts = [t4("a", cordoned=True), t4("b", free_vcpus=0), t4("c", free_vcpus=0)]
    answer = place(ask("v", Q4), hosts)
    assert isinstance(answer, Refusal)
    assert [(reason.code, reason.subjects, reason.count) for reason in answer.reasons] == [
        ("host.vcpus", ("b", "c"), 2),
        ("host.cordoned", ("a",), 1),
    ]
    assert answer.code == "gpu.no_capacity"


def test_gpu_models_that_will_do_limit_the_choice() -> None:
    hosts = [host("l40s", gpus("L40S", 1, "time_sliced")), host("h", gpus("H100 SXM5 80GB", 1, "mig"))]
    wish: Request = ask("a", "gpu:1", gpu_models=("H100 SXM5 80GB",))
    assert placed(place(wish, hosts)).host_id == "h"


def test_one_numa_node_serves_all_devices_of_a_strict_vm() -> None:
    views: tuple[GpuView, ...] = gpus("L40S", 4, "time_sliced")
    taken = replace(views[1], cut="time_sliced:49152", occupied=(held("x", "NVIDIA L40S-48Q", 0),))
    answer = placed(
        place(ask("a", "NVIDIA L40S-48Q", count=2, numa_strict=True), [host("h", (views[0], taken, *views[2:]))])
    )
    assert answer.gpu_ids == ("g2", "g3")


def test_a_host_that_is_away_is_not_said_to_be_cordoned() -> None:
    away = t4("a", cordoned=True, reason="the host is unreachable")
    answer = place(ask("v", Q4), [away])
    assert isinstance(answer, Refusal)
    assert [reason.message for reason in answer.reasons] == ["the host is unreachable"]
