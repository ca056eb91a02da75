# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.placement.engine import PlacementEngine, PlacementPlan, demand_of
from orchestrator.core.placement.index_set import IndexSet
from orchestrator.core.placement.preemption import plan_preemption
from orchestrator.core.placement.rules.health import OnWatch
from orchestrator.core.placement.views import GpuView, HostView, Occupied, Request
from tests.bench.placement.ceiling import Ceiling
from tests.bench.placement.moves.compaction import compact, drain
from tests.bench.placement.moves.engine import MovingEngine
from tests.bench.placement.moves.repack import make_room
from tests.bench.placement.moves.stays import STAYS
from tests.unit.placement.fleets import ask, broken_rules, gpus, host, settle


def mig_host(name: str, *occupied: tuple[str, int, int], **more: bool) -> HostView:
    (view,) = gpus("H100 SXM5 80GB", 1, "mig")
    held = tuple(
        Occupied(vm_id=f"{name}.{profile}@{start}", profile=profile, start=start, size=size, tenant="t",
                 needs=() if more.get("migratable", True) else (STAYS,), vcpus=1, memory_mib=1)
        for profile, start, size in occupied
    )  # fmt: skip
    return host(name, (replace(view, cut="mig" if held else None, occupied=held),))


def watched_first(name: str, count: int = 2) -> HostView:
    """Its first GPU is on watch."""
    first, *others = gpus("L40S", count, "time_sliced")
    return host(name, (replace(first, facts=(OnWatch(),)), *others))


@pytest.mark.parametrize("profile", ["NVIDIA L40S-48Q", "gpu:1"])
def test_gpus_on_watch_are_taken_when_no_others_are_left(profile: str) -> None:
    engine = PlacementEngine([watched_first("a"), watched_first("b", 3)])
    taken: list[str] = []
    for vm in range(5):
        request = ask(f"vm-{vm}", profile)
        plan = engine.plan(request)
        assert plan is not None
        taken += engine.take(request, plan).gpu_ids
    assert "g0" not in taken[:3]
    assert taken[3:] == ["g0", "g0"]


def test_a_request_that_nothing_takes_is_not_looked_for_again_as_a_gpu_is_on_watch() -> None:
    class Counting(PlacementEngine):
        looks = 0

        def _best(self, request: Request) -> PlacementPlan | None:
            self.looks += 1
            return super()._best(request)

    engine = Counting([watched_first("a")])
    assert engine.plan(ask("large", "NVIDIA L40S-48Q", vcpus=1000)) is None
    assert engine.plan(ask("vm", "NVIDIA L40S-48Q")) is not None
    assert engine.looks == 3, "the best place of the second is on watch"


def test_one_move_makes_room_and_names_from_and_to() -> None:
    engine = MovingEngine(
        [mig_host("a", ("1g.10gb", 0, 1), ("1g.10gb", 4, 1)), mig_host("b", ("4g.40gb", 0, 4), ("2g.20gb", 4, 2))]
    )
    request = ask("new", "4g.40gb")
    assert engine.plan(request) is None
    (moved,) = make_room(engine, request) or ()
    assert (moved.vm_id, moved.from_host, moved.from_start) == ("a.1g.10gb@0", "a", 0)
    assert moved.gpu_mib == 10240
    assert moved.live
    assert settle(engine, request)
    assert broken_rules(engine) == []


def test_vms_that_may_not_be_moved_stay() -> None:
    engine = MovingEngine([mig_host("a", ("1g.10gb", 0, 1), migratable=False), mig_host("b", ("7g.80gb", 0, 8))])
    assert make_room(engine, ask("new", "4g.40gb")) is None


def test_a_search_that_fails_changes_nothing() -> None:
    engine = MovingEngine(
        [mig_host("a", ("1g.10gb", 0, 1), ("2g.20gb", 2, 2)), mig_host("b", ("3g.40gb", 0, 4), ("3g.40gb", 4, 4))]
    )
    before = {vm: (held.host.view.name, [g.state for g in held.gpus]) for vm, held in engine.vms.items()}
    assert make_room(engine, ask("new", "7g.80gb")) is None
    assert before == {vm: (held.host.view.name, [g.state for g in held.gpus]) for vm, held in engine.vms.items()}
    assert broken_rules(engine) == []


def test_vms_that_could_only_swap_places_are_not_moved() -> None:
    crowded = mig_host("a", ("4g.40gb", 0, 4), ("1g.10gb", 4, 1))
    room = MovingEngine([crowded, mig_host("b", ("3g.40gb", 0, 4), ("2g.20gb", 4, 2))])
    assert make_room(room, ask("new", "3g.40gb")) is not None
    full = MovingEngine([crowded, mig_host("b", ("3g.40gb", 0, 4), ("3g.40gb", 4, 4))])
    assert make_room(full, ask("new", "3g.40gb")) is None


def test_a_gpu_is_emptied_to_be_cut_anew() -> None:
    views = gpus("L40S", 1, "time_sliced")
    one = Occupied(vm_id="x", profile="NVIDIA L40S-8Q", start=0, size=1)
    hosts = [host(n, (replace(views[0], cut="time_sliced:8192", occupied=(replace(one, vm_id=n),)),)) for n in "ab"]
    engine = MovingEngine(hosts)
    request = ask("new", "NVIDIA L40S-48Q")
    assert [moved.vm_id for moved in make_room(engine, request) or ()] == ["a"]
    assert settle(engine, request)


def test_whole_gpus_are_moved_with_the_vm_switched_off() -> None:
    views = gpus("H100 SXM5 80GB", 8, "mig")
    engine = MovingEngine([host(n, (given_out(views[0], f"in {n}"), *views[1:]), fabric=True) for n in "ab"])
    (moved,) = make_room(engine, ask("new", "gpu:8")) or ()
    assert not moved.live
    assert settle(engine, ask("new", "gpu:8"))


def given_out(view: GpuView, vm_id: str) -> GpuView:
    held = Occupied(vm_id=vm_id, profile="gpu:1", start=0, size=1)
    return replace(view, cut="whole", occupied=(held,))


def test_compaction_reaches_the_minimum_of_a_small_fleet() -> None:
    engine = MovingEngine([mig_host(name, ("1g.10gb", 0, 1)) for name in "abcdefg"])
    plan = compact(engine)
    assert (engine.fleet.active, plan.freed) == (1, 6)
    assert 6 <= len(plan.moves) <= 12
    assert Ceiling(engine.fleet, engine.counts).minimum_gpus() == 1


def test_a_gpu_that_cannot_be_emptied_does_not_keep_one_from_it_that_is_as_full_of_other_vms() -> None:
    fixed = mig_host("fixed", ("2g.20gb", 0, 2), migratable=False)
    engine = MovingEngine(
        [mig_host("a", ("4g.40gb", 0, 4)), mig_host("b", ("2g.20gb", 0, 2), ("2g.20gb", 2, 2)), fixed]
    )
    assert compact(engine).freed == 1
    assert engine.fleet.active == 2
    assert broken_rules(engine) == []


def test_vms_step_aside_for_a_compaction_onto_gpus_in_use_alone() -> None:
    crowded = mig_host("a", ("1g.10gb", 1, 1), ("3g.40gb", 4, 4))
    engine = MovingEngine([crowded, mig_host("b", ("4g.40gb", 0, 4)), mig_host("empty")])
    plan = compact(engine)
    assert plan.freed == 0
    assert [gpu.view.gpu_id for gpu in engine.fleet.hosts[2].gpus if gpu.held] == []
    assert engine.plan(ask("new", "7g.80gb")) is not None
    assert broken_rules(engine) == []


def test_draining_lists_vms_that_found_no_place() -> None:
    engine = MovingEngine([mig_host("a", ("4g.40gb", 0, 4), ("1g.10gb", 4, 1)), mig_host("b", ("4g.40gb", 0, 4))])
    plan = drain(engine, engine.fleet.hosts[0])
    assert [moved.vm_id for moved in plan.moves] == ["a.1g.10gb@4"]
    assert plan.left == ("a.4g.40gb@0",)


def test_preemption_takes_the_fewest_slot_hours() -> None:
    def busy(name: str, since: float, priority: int = 0) -> HostView:
        view = mig_host(name, ("3g.40gb", 0, 4), ("3g.40gb", 4, 4))
        (gpu,) = view.gpus
        held = tuple(replace(item, since_s=since, priority=priority) for item in gpu.occupied)
        return replace(view, gpus=(replace(gpu, occupied=held),))

    engine = MovingEngine([busy("old", 0.0), busy("young", 3000.0), busy("high", 3500.0, priority=9)])
    found = plan_preemption(engine, ask("urgent", "2g.20gb", priority=5, now_s=3600.0))
    assert found is not None
    assert (found.host_id, len(found.victims)) == ("young", 1)
    assert found.slot_hours == pytest.approx(40 * 600 / 3600)
    assert plan_preemption(engine, ask("same", "2g.20gb", priority=0, now_s=3600.0)) is None


def test_the_ceiling_counts_what_perfect_packing_would_hold() -> None:
    engine = MovingEngine([mig_host("a"), mig_host("b")])
    ceiling = Ceiling(engine.fleet)
    for _ in range(14):
        assert ceiling.fits(demand_of(ask("", "1g.10gb")))
        ceiling.add(demand_of(ask("", "1g.10gb")))
    assert not ceiling.fits(demand_of(ask("", "1g.10gb")))
    assert ceiling.exact


def test_an_index_set_behaves_like_a_set() -> None:
    ours, theirs = IndexSet(), set[int]()
    for number in (5, 3, 4096, 100_000, 3, 1023, 1024):
        ours.add(number)
        theirs.add(number)
    for number in (3, 77, 100_000):
        ours.discard(number)
        theirs.discard(number)
    assert list(ours) == sorted(theirs)
    assert ours.smallest() == min(theirs)
    assert len(ours) == len(theirs)
    for number in list(ours):
        ours.discard(number)
    assert not ours
