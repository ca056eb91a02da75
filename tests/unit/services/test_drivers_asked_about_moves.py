# SPDX-License-Identifier: Apache-2.0
"""Where drivers say whether vGPUs and GPUs go together, they are asked, and data are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.gpu.vgpu_metadata import Answers, Compatibility, RunningVgpu, VgpuQuestion
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.moves.answers import limits_of_answer
from orchestrator.core.moves.verdicts import HostMoves
from orchestrator.services.hosts.observing import Look
from orchestrator.services.messages import MoveVm
from orchestrator.services.vms import driver_answers
from tests.fakes import fake_metadata
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with
from tests.unit.services.test_moves import WITH_DEVICES, WITH_MEMORY, observe, refused

OTHERS = ("other-1", "other-2", "other-3")
HIBERNATE, SLEEP, LIVE = 2, 4, 8


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs, and hosts like its own whose drivers can be asked."""
    with plane_with(tmp_path, T4_HOST) as made:
        made.hosts.compares = True
        made.services.vms.create(create_vm())
        made.engine.drain()
        for name in OTHERS:
            machine = made.hosts.machines[f"{name}.test"] = deepcopy(made.machine(T4_HOST))
            machine.machine_id, machine.domains, machine.mdevs = name, {}, {}
            with made.store.begin() as tx:
                host = tx.hosts.get(T4_HOST)
                tx.hosts.add(replace(host, name=name, address=f"{name}.test", machine_id=name, managed_gpus=()))
                tx.hosts.set_gpus(name, host.managed_gpus)
        see(made)
        yield made


def see(plane: ControlPlane, *, driver: str | None = None) -> None:
    """Every host is observed; ``driver``: of the others."""
    for name in (T4_HOST, *OTHERS):
        if driver is not None and name != T4_HOST:
            plane.machine(name).driver_version = driver
        plane.observer.observe(name)


def moves(plane: ControlPlane, host: str = "other-1") -> HostMoves:
    return plane.services.moves.to_host("default", "train", host)


def host_of(plane: ControlPlane, name: str) -> Host:
    with plane.store.read() as tx:
        return tx.hosts.get(name)


def asked(plane: ControlPlane) -> int:
    return plane.hosts.effects.count("vgpu_compatibility")


def page(plane: ControlPlane) -> dict[str, list[str]]:
    found = plane.services.moves.of_vm("default", "train", most=10)
    return {to.host: sorted(refused(to)) for to in found}


def test_the_driver_has_the_last_word_of_a_newer_version_of_itself(plane: ControlPlane) -> None:
    see(plane, driver="580.126.1")
    assert refused(moves(plane)) == {}, "by data it would be move.host_driver_version"


def test_another_branch_is_refused_by_the_driver_itself(plane: ControlPlane) -> None:
    see(plane, driver="595.1")
    limits = moves(plane).of("live").limits
    assert refused(moves(plane)) == {"move.host_driver": WITH_MEMORY}
    assert limits[0].message == "the driver of other-1 does not take what its own host's has of the vGPU"


def test_each_host_is_asked_once_and_its_answer_is_kept(plane: ControlPlane) -> None:
    expected = {T4_HOST: ["move.same_host"], **{name: [] for name in OTHERS}}
    assert page(plane) == expected
    assert asked(plane) == 4
    assert page(plane) == expected
    assert asked(plane) == 4
    see(plane, driver="580.126.1")
    assert page(plane) == expected
    assert asked(plane) == 7


@pytest.mark.parametrize(("lie", "code"), [(None, "move.not_asked"), (Compatibility(0, 4), "move.gpu")])
def test_a_host_that_hangs_or_lies_answers_for_none_that_are_like_it(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, lie: Compatibility | None, code: str
) -> None:
    honest = plane.hosts.vgpu_compatibility

    def answers(host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        if host.name != "other-1":
            return honest(host, questions)
        if lie is None:
            raise Retryable("host.unreachable", "it cannot be reached")
        return (lie,) * len(questions)

    monkeypatch.setattr(plane.hosts, "vgpu_compatibility", answers)
    assert page(plane) == {T4_HOST: ["move.same_host"], "other-1": [code], "other-2": [], "other-3": []}


def test_who_was_not_asked_in_time_is_not_called_legal(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.services.vms.moves.ASK_S", 0.0)
    unasked = {name: ["move.not_asked"] for name in OTHERS}
    assert page(plane) == {T4_HOST: ["move.not_asked", "move.same_host"], **unasked}
    assert asked(plane) == 0
    (limit,) = moves(plane).of("suspended").limits
    assert limit.cure == "'vgpuctl show-vm train --tenant default --moves --host other-1' asks it"
    assert plane.services.moves.of_vm("default", "train", most=10, legal="live") == ()
    assert {to.host for to in plane.services.moves.of_vm("default", "train", most=10, legal="cold")} >= {*OTHERS}


def test_a_host_that_does_not_answer_is_left_alone_for_a_while(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def silent(host: Host, _questions: object) -> None:
        calls.append(host.name)
        raise Retryable("host.unreachable", "it cannot be reached")

    with monkeypatch.context() as broken:
        broken.setattr(plane.hosts, "vgpu_compatibility", silent)
        (limit,) = moves(plane).of("live").limits
        assert "did not answer (it cannot be reached)" in limit.message
        assert refused(moves(plane)) == {"move.not_asked": WITH_MEMORY}
        assert calls == ["other-1"]
    plane.world.clock.sleep(31)
    assert refused(moves(plane)) == {}


def test_a_driver_without_the_call_is_judged_by_data(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane.hosts, "vgpu_compatibility", lambda _host, questions: (None,) * len(questions))
    see(plane, driver="580.126.1")
    assert refused(moves(plane)) == {"move.host_driver_version": WITH_DEVICES}


def test_nobody_is_asked_about_what_something_else_rules_out(plane: ControlPlane) -> None:
    observe(plane, "other-1", cpu=None)
    assert refused(moves(plane)) == {"move.cpu": WITH_MEMORY}
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    see(plane)
    assert refused(moves(plane, "other-2")) == {"move.not_running": WITH_MEMORY}
    assert asked(plane) == 0


def test_what_its_driver_said_of_the_vgpu_is_known_while_its_host_is_away(plane: ControlPlane) -> None:
    see(plane, driver="595.1")
    moves(plane)
    vm = plane.services.vms.get("default", "train")
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable"))
        kept = tx.vgpu_metadata.of(vm.id)
        assert list(kept) == [vm.devices[0].gpu]
    assert sorted(refused(moves(plane))) == ["move.host_driver", "move.own_host_away"]
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="ready"))
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.read() as tx:
        assert tx.vgpu_metadata.of(vm.id) == {}


def test_a_host_tells_of_no_more_vgpus_than_its_vms_have(plane: ControlPlane) -> None:
    vm = plane.services.vms.get("default", "train")
    seen = plane.hosts.observe(host_of(plane, T4_HOST))
    many = tuple(RunningVgpu(vm=vm.id, metadata=f"{number:04}") for number in range(1024))
    gpus = tuple(replace(gpu, open_vgpus=many) for gpu in seen.gpus)
    assert len(gpus) > 1
    plane.observer.keep(T4_HOST, Look(began=plane.world.clock.now(), turn=2**40, found=replace(seen, gpus=gpus)))
    with plane.store.read() as tx:
        assert tx.vgpu_metadata.of(vm.id) == {vm.devices[0].gpu: ("0000",)}


def test_a_vgpu_that_nobody_has_read_yet_is_read_once_when_somebody_asks(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.services.vms.create(create_vm("new"))
    plane.engine.drain()
    target = next(name for name in OTHERS if name != plane.services.vms.get("default", "new").host)
    observed: list[str] = []
    observe = plane.hosts.observe

    def counted(host: Host) -> HostSnapshot:
        observed.append(host.name)
        return observe(host)

    monkeypatch.setattr(plane.hosts, "observe", counted)
    for _ in range(2):
        assert refused(plane.services.moves.to_host("default", "new", target)) == {}
    assert observed == [plane.services.vms.get("default", "new").host]


def test_a_vgpu_of_which_its_driver_says_nothing_yet_is_not_called_legal(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.services.vms.create(create_vm("new"))
    plane.engine.drain()
    target = next(name for name in OTHERS if name != plane.services.vms.get("default", "new").host)
    with monkeypatch.context() as silent:
        silent.setattr(fake_metadata, "RunningVgpu", lambda vm, metadata: RunningVgpu(vm="another", metadata=metadata))
        assert refused(plane.services.moves.to_host("default", "new", target)) == {"move.not_asked": WITH_MEMORY}


def move_to(plane: ControlPlane, name: str = "train", host: str | None = None) -> str:
    return plane.services.moving.plan(MoveVm(tenant="default", name=name, host=host)).target


def test_one_that_has_just_started_moves_at_once(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm("new"))
    plane.engine.drain()
    own = plane.services.vms.get("default", "new").host
    assert move_to(plane, "new", next(name for name in OTHERS if name != own)) in OTHERS


def answering(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, takes: str) -> list[str]:
    """The other hosts' drivers refuse; who was asked."""
    calls: list[str] = []

    def answers(host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        calls.append(host.name)
        return (Compatibility(1 | HIBERNATE | SLEEP | LIVE, 0) if host.name == takes else Compatibility(0, 4),) * len(
            questions
        )

    monkeypatch.setattr(plane.hosts, "vgpu_compatibility", answers)
    return calls


@pytest.mark.parametrize("takes", OTHERS)
def test_where_the_chosen_host_refuses_the_next_one_is_tried(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, takes: str
) -> None:
    calls = answering(plane, monkeypatch, takes)
    assert move_to(plane) == takes
    assert calls[-1] == takes
    assert len(set(calls)) == len(calls) <= 3


def test_where_three_refuse_nobody_else_is_asked_and_they_are_named(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = answering(plane, monkeypatch, takes="nobody")
    with pytest.raises(Conflict) as stays:
        move_to(plane)
    assert stays.value.code == "vm.stays"
    assert sorted(calls) == [*OTHERS]
    assert all(name in stays.value.message for name in OTHERS)
    assert sorted(reason.subjects for reason in stays.value.reasons) == [(name,) for name in OTHERS]


def test_a_host_with_the_same_driver_is_tried_before_others(plane: ControlPlane) -> None:
    for number, name in enumerate(OTHERS):
        plane.machine(name).driver_version = plane.machine(T4_HOST).driver_version if number == 2 else "595.1"
    for name in OTHERS:
        plane.observer.observe(name)
    assert move_to(plane) == "other-3"
    assert asked(plane) == 1


ANSWERS = {
    (0, 4): {"move.gpu": WITH_MEMORY},
    (1, 2): {"move.guest_driver": WITH_MEMORY},
    (1, 3): {"move.host_driver": WITH_MEMORY, "move.guest_driver": WITH_MEMORY},
    (1 | HIBERNATE | SLEEP, 1): {"move.host_driver": ("live",)},
    (1 | HIBERNATE, 0): {"move.driver_refuses": WITH_DEVICES},
    (0, 0x80000000): {"move.driver_refuses": WITH_MEMORY},
    (1 | HIBERNATE | SLEEP | LIVE, 0): {},
}


@pytest.mark.parametrize(("bits", "limits"), ANSWERS.items())
def test_each_bit_of_an_answer_is_a_limit(bits: tuple[int, int], limits: dict[str, tuple[str, ...]]) -> None:
    ruled_out = {limit.code: kinds for kinds, limit in limits_of_answer(Compatibility(*bits), "h", create_vm())}
    assert ruled_out == {code: frozenset(kinds) for code, kinds in limits.items()}


def test_no_more_answers_are_kept_than_bounded(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_answers, "MAX_ANSWERS", 1)
    drivers = plane.services.moves.drivers
    host = host_of(plane, "other-1")
    moves(plane)
    ((_, first),) = drivers._kept
    other = VgpuQuestion(first.vgpu, first.vgpu)
    drivers.ask({"other-1": [other]}, {"other-1": host}, drivers.clock.monotonic() + 1)
    assert len(drivers._kept) == 1
