# SPDX-License-Identifier: Apache-2.0
"""A stopped VM may move to a host exactly where explain would put such a VM if it were not there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import Conflict, NoCapacity, VgpuctlError
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.moves.verdicts import HostMoves, MoveKind
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.operation import Operation
from orchestrator.core.vms.network import Network
from orchestrator.services.messages import CreateVm, MoveVm
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import A100_HOST, GIB, L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with

PROFILES = ("GRID T4-2Q", "GRID T4-16Q", "NVIDIA L40S-12Q", "GRID A100D-1-10C", "gpu:1", "racked", "apart")
TRIES = 90


def vm(rng: random.Random, number: int) -> CreateVm:
    bare = create_vm(f"vm{number}", profile=rng.choice(PROFILES), start=rng.random() < 0.5)
    return replace(
        bare, vcpus=rng.choice((1, 2, 8)), memory_mib=rng.choice((256, 2048, 8192)),
        disk_bytes=rng.choice((1, 20, 60)) * GIB, tpm=rng.choice((*[None] * 9, True)),
        more_networks=rng.choice(((), (), ("office",))),
    )  # fmt: skip


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST, A100_HOST) as made:
        with made.store.begin() as tx:
            tx.networks.add(Network(name="office", shared=True, uplink=Uplink(bridge="br0", vlan=7)))
            t4: dict[str, Any] = {"kind": "time_sliced", "vgpu_type": "GRID T4-2Q", "origin": "site"}
            tx.offerings.put(Offering(name="racked", hosts=(("rack", "3"),), **t4))
            tx.offerings.put(Offering(name="apart", anti_affinity="host", **t4))
        beside(made, "t4-racked", T4_HOST, labels=(("rack", "3"),))
        beside(made, "t4-cordoned", T4_HOST, cordoned=True)
        beside(made, "t4-bare", T4_HOST, features=(), storage_free_bytes=10 * GIB)
        beside(made, "t4-small", T4_HOST, vcpus=1, memory_mib=1024)
        beside(made, "l40s-away", L40S_HOST, state="unreachable")
        yield made


def beside(plane: ControlPlane, name: str, like: str, **more: Any) -> None:
    """One more host, like that one but for ``more`` of it or of what is seen there."""
    plane.hosts.machines[f"{name}.test"] = replace(deepcopy(plane.machine(like)), machine_id=name)
    of_host = {key: more.pop(key) for key in ("cordoned", "labels", "state") if key in more}
    with plane.store.begin() as tx:
        host, snapshot = tx.hosts.get(like), tx.hosts.snapshot(like)
        assert snapshot is not None
        tx.hosts.add(replace(host, name=name, address=f"{name}.test", machine_id=name, managed_gpus=(), **of_host))
        tx.hosts.set_gpus(name, [gpu.address for gpu in snapshot.gpus])
        tx.hosts.put_snapshot(name, replace(snapshot, machine_id=name, **more), 10**12)


def test_a_cold_move_is_legal_where_explain_has_a_place(plane: ControlPlane) -> None:
    services, rng, counted = plane.services, random.Random(7), Counter[str]()
    for number in range(TRIES):
        request = vm(rng, number)
        try:
            services.vms.create(request)
        except NoCapacity:
            continue
        plane.engine.drain()
        if all(one.spec.name != request.name for one in services.vms.list(None)):  # it was undone
            continue
        moves = services.moves.of_vm("default", request.name, most=100)
        keep = rng.random() < 0.3 and request.profile != "apart"
        if not request.start:
            counted["begun"] += sum(moves_as_said(plane, request.name, move) for move in moves)
        moves = tuple(move for move in moves if not move.is_its_own and not of_another_model(move))
        if not keep:  # others' claims are in the way of the next ones
            services.vms.delete("default", request.name)
            plane.engine.drain()
        for move in moves:
            counted["pairs"] += 1
            counted["legal"] += check(plane, move, request)
    assert counted["pairs"] >= 200
    assert counted["begun"] >= 10
    assert min(counted["legal"], counted["pairs"] - counted["legal"]) >= 30, counted


def of_another_model(move: HostMoves) -> bool:
    """A VM keeps the model of its whole GPUs, which no new one has."""
    return any(limit.message.startswith("it has no ") for limit in move.of("cold").limits)


def moves_as_said(plane: ControlPlane, name: str, move: HostMoves) -> bool:
    """That it is begun where it is legal, onto these GPUs, and refused where it is not."""
    request = MoveVm(name=name, tenant="default", host=move.host)
    if move.may("cold"):
        assert set(plane.services.moving.plan(request).gpus) == set(move.gpus)
        return True
    with pytest.raises((Conflict, NoCapacity)) as refused:
        plane.services.moving.plan(request)
    limits, told = move.of("cold").limits, {reason.code for reason in refused.value.reasons}
    assert told & {limit.code for limit in limits}, (limits, refused.value)
    return False


@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12, 20))])
def test_every_move_that_is_legal_is_carried_out_and_every_other_one_refused_before_anything(
    plane: ControlPlane, seed: int
) -> None:
    """Stopped, running, and shut down for it: none is begun that fails for what was known."""
    for name, like in (("t4-2", T4_HOST), ("l40s-2", L40S_HOST), ("a100-2", A100_HOST)):
        beside(plane, name, like)
    with plane.store.begin() as tx:
        for name, vgpu_type in (("live-t4", "GRID T4-2Q"), ("live-l40s", "NVIDIA L40S-12Q")):
            offering = Offering(name=name, kind="time_sliced", vgpu_type=vgpu_type, origin="site", migratable=True)
            tx.offerings.put(offering)
    services, rng, counted = plane.services, random.Random(seed), Counter[str]()
    for number in range(40):
        request = replace(vm(rng, number), profile=rng.choice((*PROFILES, "live-t4", "live-l40s")))
        with suppress(NoCapacity):
            services.vms.create(request)
            plane.engine.drain()
            for _ in range(3):
                go_where_it_may(plane, rng, request.name, counted)
            if rng.random() < 0.7:
                services.vms.delete("default", request.name)
                plane.engine.drain()
    assert counted.total() >= 200
    assert min(counted[kind] for kind in ("refused", "move_vm", "move_vm_cold", "move_running_vm")) >= 5, counted


def go_where_it_may(plane: ControlPlane, rng: random.Random, name: str, counted: Counter[str]) -> None:
    """To one of the hosts where it may go, and to none where it may not."""
    services = plane.services
    state, cold = services.vms.get("default", name).state, rng.random() < 0.5
    how: MoveKind = "cold" if cold or state == "stopped" else "live"
    hosts = services.moves.of_vm("default", name, most=100)
    begun = len(operations(plane))
    plane.hosts.effects.clear()
    for move in hosts:
        if not move.may(how):
            with pytest.raises(VgpuctlError):
                services.moving.move(MoveVm(name=name, tenant="default", host=move.host, cold=cold))
            counted["refused"] += 1
    assert (len(operations(plane)), plane.hosts.effects) == (begun, [])
    if legal := [move.host for move in hosts if move.may(how)]:
        host = rng.choice(legal)
        services.moving.move(MoveVm(name=name, tenant="default", host=host, cold=cold))
        plane.engine.drain()
        done = operations(plane)[0]
        now = services.vms.get("default", name)
        assert (done.state, now.host, now.state) == ("done", host, state), (done.kind, done.error)
        counted[done.kind] += 1


def operations(plane: ControlPlane) -> tuple[Operation, ...]:
    with plane.store.read() as tx:
        return tx.operations.list(limit=10_000)


def check(plane: ControlPlane, move: HostMoves, request: CreateVm) -> bool:
    """That both say the same, for the same reasons."""
    names = {"profile", "vcpus", "memory_mib", "disk_bytes", "tpm", "more_networks"}
    question = Question(host=move.host, **{name: getattr(request, name) for name in names})
    explained = plane.services.capacity.explain(question).explanation
    limits = {limit.code for limit in move.of("cold").limits} - {"move.tpm"}
    assert (not limits) is explained.fits, (move, explained)
    if explained.placement is not None:
        assert set(move.gpus) == set(explained.placement.gpu_ids)
    else:
        told = {reason.code for reason in explained.reasons}
        assert limits <= told
    return move.may("cold")


def test_a_vm_with_a_whole_gpu_goes_where_its_model_is_and_nowhere_else(tmp_path: Path) -> None:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as plane:
        alone = replace(create_vm("train", profile="gpu:1", start=False), host=L40S_HOST)
        plane.services.vms.create(alone)
        plane.engine.drain()
        (there,) = (moves for moves in plane.services.moves.of_vm("default", "train", most=9) if moves.host == T4_HOST)
        assert {limit.message for verdict in there.verdicts for limit in verdict.limits} >= {"it has no L40S"}
        for ask in (MoveVm(name="train", tenant="default"), MoveVm(name="train", tenant="default", host=T4_HOST)):
            with pytest.raises(NoCapacity) as refused:
                plane.services.moving.move(ask)
            assert "it has no L40S" in {reason.message for reason in refused.value.reasons}
        beside(plane, "l40s-2", L40S_HOST)
        plane.services.moving.move(MoveVm(name="train", tenant="default"))
        plane.engine.drain()
        assert plane.services.vms.get("default", "train").host == "l40s-2"
