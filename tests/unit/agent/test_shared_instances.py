# SPDX-License-Identifier: Apache-2.0
"""GPU instances that several vGPUs share: made for the first VM, kept while one has it, destroyed with the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.attachments.mig_backed import InstanceHolders
from orchestrator.core.actions.host_actions import CreateGpuInstance, DestroyGpuInstance
from orchestrator.core.attachments import make, remove
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.mig_layout import KEEPER
from tests.unit.agent.fake_a100 import A100, VFS
from tests.unit.agent.test_mig_backed import FRAMEWORKS, PROFILE, Bench, start_of


@pytest.fixture(params=FRAMEWORKS)
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    """A driver that lets two vGPUs lie in one instance, and fills the first that it finds."""
    return Bench(tmp_path, most=2, functions=7, mediated=request.param == "mediated")


def made(bench: Bench, vm: str, vf: int, start: int) -> None:
    for action in make(vm, bench.device(vf, start)):
        bench.do(action)


def removed(bench: Bench, vm: str, vf: int, start: int) -> None:
    for action in remove(vm, bench.device(vf, start)):
        bench.do(action)


def typed(bench: Bench) -> dict[int, int]:
    """Number of the function → where the instance around its vGPU begins."""
    return {VFS.index(vf): start_of(bench, VFS.index(vf)) for vf in bench.host.inside}


def holders(bench: Bench, start: int) -> set[str]:
    return set(InstanceHolders(bench.ledger).of(A100, start))


@pytest.mark.parametrize("first", ["a", "b"])
def test_an_instance_is_made_for_the_first_kept_for_the_other_and_destroyed_with_the_last(
    bench: Bench, first: str
) -> None:
    before = bench.there()
    for _ in range(2):
        made(bench, "a", 0, 2)
        made(bench, "b", 1, 2)
    assert typed(bench) == {0: 2, 1: 2}
    (instance,) = bench.mig.instances(A100)
    for vm in sorted("ab", key=lambda one: one != first):
        assert instance in bench.mig.instances(A100)
        for _ in range(2):
            removed(bench, vm, "ab".index(vm), 2)
    assert bench.there() == before
    assert holders(bench, 2) == set()


def test_who_comes_between_finds_it_and_who_was_first_does_not_take_it_along(bench: Bench) -> None:
    """b holds it and has no vGPU yet when a leaves."""
    made(bench, "a", 0, 2)
    *first, last = make("b", bench.device(1, 2))
    for action in first:
        bench.do(action)
    removed(bench, "a", 0, 2)
    bench.do(last)
    assert typed(bench) == {1: 2}
    made(bench, "c", 2, 2)
    assert holders(bench, 2) == {"b", "c"}


@pytest.mark.fault("F74")
def test_a_vgpu_lies_in_its_own_instance_though_the_driver_would_fill_another_first(bench: Bench) -> None:
    """Room in that of a running VM, and an instance that no vGPU is in yet, are both before it."""
    made(bench, "a", 0, 0)
    bench.do(CreateGpuInstance(vm="b", gpu=A100, profile=PROFILE, start=4))
    made(bench, "c", 1, 2)
    assert typed(bench) == {0: 0, 1: 2}
    assert sorted(one.start for one in bench.mig.instances(A100)) == [0, 2, 4]
    names = {bench.device(vf).name for vf in (0, 1)}
    assert {*bench.ledger.owned("vf:"), *bench.ledger.owned("mdev:")} == names
    made(bench, "b", 2, 4)
    made(bench, "d", 3, 2)
    assert typed(bench) == {0: 0, 1: 2, 2: 4, 3: 2}


def test_where_no_function_is_left_to_fill_the_other_it_is_refused_and_nothing_stays(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, most=2)
    made(bench, "a", 0, 0)
    for vf in (1, 2):
        bench.mig.create(A100, "1g.10gb", 3 + vf)
        bench.host.set_type(VFS[vf], 699)
    before = bench.there()
    with pytest.raises(Conflict) as raised:
        made(bench, "b", 3, 2)
    assert raised.value.code == "gpu.instance_chosen"
    removed(bench, "b", 3, 2)
    assert bench.there() == before


def test_two_of_one_vm_lie_in_it_and_both_are_gone_before_it_is(bench: Bench) -> None:
    before = bench.there()
    made(bench, "a", 0, 2)
    made(bench, "a", 1, 2)
    assert typed(bench) == {0: 2, 1: 2}
    removed(bench, "a", 1, 2)
    shared = bench.do(DestroyGpuInstance(vm="a", gpu=A100, start=2))
    assert (shared.changed, shared.cleaned) == (False, "absent")  # what is there is another one's, with its own end
    assert typed(bench) == {0: 2}
    removed(bench, "a", 0, 2)
    assert bench.there() == before


def test_a_full_instance_takes_no_third(bench: Bench) -> None:
    made(bench, "a", 0, 2)
    made(bench, "b", 1, 2)
    before = bench.there()
    with pytest.raises(Fatal) as raised:
        made(bench, "c", 2, 2)
    assert raised.value.code == "vgpu.no_room"
    removed(bench, "c", 2, 2)
    assert bench.there() == before


def test_one_in_which_somebody_else_has_a_vgpu_is_left_to_him(bench: Bench) -> None:
    made(bench, "a", 0, 2)
    bench.host.by_hand(1, 1054)
    removed(bench, "a", 0, 2)
    assert typed(bench) == {1: 2}
    assert holders(bench, 2) == set()
    with pytest.raises(Conflict) as raised:
        made(bench, "b", 2, 2)
    assert raised.value.code == "gpu.instance_foreign"


def test_a_layouts_instance_and_one_of_a_driver_that_shares_none_is_one_holders_alone(bench: Bench) -> None:
    bench.do(CreateGpuInstance(vm=KEEPER, gpu=A100, profile=PROFILE, start=0))
    bench.do(CreateGpuInstance(vm="a", gpu=A100, profile="1g.10gb", start=6))
    for profile, start in ((PROFILE, 0), ("1g.10gb", 6)):
        with pytest.raises(Conflict) as raised:
            bench.do(CreateGpuInstance(vm="b", gpu=A100, profile=profile, start=start))
        assert raised.value.code == "gpu.instance_foreign"
        assert not bench.do(DestroyGpuInstance(vm="b", gpu=A100, start=start)).changed


def test_two_adopted_vgpus_of_one_instance_are_each_their_vms_and_are_released_as_they_are(bench: Bench) -> None:
    bench.mig.create(A100, PROFILE, 2)
    for vf in (0, 1):
        bench.host.by_hand(vf, 1054)
    before, kind = bench.there(), bench.kinds["mig_backed"]
    kind.adopt("a", bench.device(0, 2))
    kind.adopt("b", bench.device(1, 2))
    assert holders(bench, 2) == {"a", "b"}
    kind.release("a", bench.device(0, 2))
    assert holders(bench, 2) == {"b"}
    assert bench.there() == before
