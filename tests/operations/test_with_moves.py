# SPDX-License-Identifier: Apache-2.0
"""A VM that fits nowhere, and would after legal moves of others: they move, and it is made in what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import InvalidInput, NoCapacity
from orchestrator.services.messages import CreateVm, Started
from orchestrator.services.vms.capacity import Question
from orchestrator.services.vms.moving import VmMoves
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_machine import FakeMachine, l40s
from tests.fakes.recount import miscounted
from tests.operations.moves import MIGRATABLE, OTHER, small_vm_on_each, where

WHOLE = "NVIDIA L40S-48Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Two hosts of one GPU each, and a small VM on each."""
    made = control_plane(tmp_path)
    for number, host in enumerate((L40S_HOST, OTHER)):
        made.hosts.machines[f"{host}.test"] = FakeMachine(machine_id=f"m1{number}", gpus=[l40s()])
        made.add_host(host)
    small_vm_on_each(made)
    yield made
    with made.store.read() as tx:
        assert list(miscounted(tx)) == []
    made.store.close()


def large(**more: Any) -> CreateVm:
    return replace(create_vm("large", profile=WHOLE), **more)


def ended(plane: ControlPlane, started: Started) -> str:
    plane.engine.drain()
    plane.engine.submit(str(started.operation))
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation)).state


def test_nobody_moves_unless_somebody_said_so(plane: ControlPlane) -> None:
    with pytest.raises(NoCapacity):
        plane.services.vms.create(large())
    assert plane.engine.waiting == []


def test_it_waits_for_moves_of_vms_that_run_on_and_is_made_in_what_they_leave(plane: ControlPlane) -> None:
    dry = plane.services.vms.plan(large(with_moves=True))
    started = plane.services.vms.create(large(with_moves=True))
    assert (len(started.first), started.moved, started.preempted) == (1, dry.moves, ())
    plane.engine.waiting[:] = list(started.first)
    assert ended(plane, started) == "done"
    mover = started.moved[0].partition("/")[2]
    after = where(plane)
    assert after["large"] == (dry.host, "running")
    assert after[mover][0] != dry.host
    assert {state for _, state in after.values()} == {"running"}
    with plane.store.read() as tx:
        assert {operation.kind for operation in tx.operations.list()} >= {"move_running_vm", "preempt_for_vm"}


def test_explain_suggests_what_a_create_does(plane: ControlPlane) -> None:
    named = plane.services.capacity.explain(Question(profile=WHOLE, vcpus=1, memory_mib=1024, disk_bytes=1 << 30))
    started = plane.services.vms.create(large(with_moves=True))
    with plane.store.read() as tx:
        moves = [tx.operations.get(name).inputs for name in started.first]
    said = tuple(
        f"{name} from {move['source']} to {move['target']}" for name, move in zip(started.moved, moves, strict=True)
    )
    assert (named.explanation.fits, named.moves) == (False, said)
    plane.engine.waiting[:] = list(started.first)
    assert ended(plane, started) == "done"


def test_nobody_else_gets_what_is_left_for_it(plane: ControlPlane) -> None:
    started = plane.services.vms.create(large(with_moves=True))
    plane.engine.waiting[:] = list(started.first)
    plane.engine.drain()
    with pytest.raises(NoCapacity):
        plane.services.vms.create(replace(create_vm("late", profile="NVIDIA L40S-12Q"), host=where(plane)["large"][0]))
    assert ended(plane, started) == "done"


def test_a_move_that_fails_costs_the_create_and_leaves_all_as_it_was(plane: ControlPlane) -> None:
    before = where(plane)
    started = plane.services.vms.create(large(with_moves=True))
    plane.services.operations.cancel(started.first[0])
    plane.engine.waiting[:] = list(started.first)
    assert ended(plane, started) == "undone"
    assert where(plane) == before
    error = plane.services.operations.get(str(started.operation)).error
    assert error is not None
    assert error["code"] == "preemption.not_freed"


def test_vms_of_others_move_only_for_a_tenant_that_may_have_them_make_way(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("blue")
    with pytest.raises(NoCapacity):
        plane.services.vms.create(large(with_moves=True, tenant="blue"))
    plane.services.tenancy.policies.change("blue", {"preempt": True})
    assert plane.services.vms.create(large(with_moves=True, tenant="blue")).moved[0].startswith("default/")


def test_who_would_be_stopped_moves_instead_where_that_is_legal(plane: ControlPlane) -> None:
    plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    started = plane.services.vms.create(large(preempt=True, priority="high"))
    assert (len(started.moved), started.preempted) == (1, ())


def test_who_may_not_move_is_stopped_as_before(plane: ControlPlane) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(replace(MIGRATABLE, migratable=False))
    plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
    started = plane.services.vms.create(large(preempt=True, priority="high"))
    assert (started.moved, len(started.preempted)) == ((), 1)


def test_nobody_moves_for_a_vm_that_is_not_to_be_started(plane: ControlPlane) -> None:
    with pytest.raises(InvalidInput) as refused:
        plane.services.vms.create(large(with_moves=True, start=False))
    assert (refused.value.code, refused.value.hint) == (
        "preemption.not_started",
        "leave out --no-start, or --with-moves",
    )
    assert plane.engine.waiting == []


def test_a_create_whose_mover_has_no_place_any_more_leaves_nothing_reserved(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: object) -> None:
        raise NoCapacity("gpu.no_capacity", "somebody was faster")

    with monkeypatch.context() as patch:
        patch.setattr(VmMoves, "planned", taken)
        with pytest.raises(NoCapacity, match="somebody was faster"):
            plane.services.vms.create(large(with_moves=True))
    assert len(plane.services.vms.create(large(with_moves=True)).moved) == 1
