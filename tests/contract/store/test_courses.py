# SPDX-License-Identifier: Apache-2.0
"""What an attempt at an operation writes, on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import NotFound
from orchestrator.core.operation import Watched
from orchestrator.store.database import Store
from tests.contract.store.test_store import operation, vm


def test_only_the_newest_attempt_at_an_operation_writes_its_course(store: Store) -> None:
    with store.begin() as tx:
        tx.operations.add(replace(operation(), state="queued"), host="h1", inputs={})
    with store.begin() as tx:
        first = tx.operations.take_up("op", 1.0)
        second = tx.operations.take_up("op", 1.0)
    assert first is not None
    assert second is not None
    assert (second.operation.state, second.operation.attempt - first.operation.attempt) == ("running", 1)
    moved = {0: replace(operation().steps[0], state="done", message="moved"), 1: operation().steps[1]}
    with store.begin() as tx:
        assert not tx.operations.is_newest("op", first.operation.attempt)
        assert tx.operations.advance(first.operation, moved, whole=True) is None
        assert tx.operations.get("op") == second
        assert tx.operations.is_newest("op", second.operation.attempt)
        assert tx.operations.advance(second.operation, moved, whole=False) is False
        tx.operations.request_cancel("op")
        assert tx.operations.advance(replace(second.operation, state="done"), {}, whole=True) is True
        after = tx.operations.get("op")
        assert (after.operation.state, after.operation.steps[0]) == ("done", moved[0])
        assert tx.operations.take_up("op", 1.0) is None
        with pytest.raises(NotFound):
            tx.operations.take_up("other", 1.0)


def test_who_listens_to_an_operation_hears_of_every_step_of_its_course(store: Store) -> None:
    with store.begin() as tx:
        tx.operations.add(operation(), host="h1", inputs={})
    told: list[Watched | None] = []
    store.listen("op", told.append)
    with store.begin() as tx:
        job = tx.operations.take_up("op", 1.0)
    assert job is not None
    assert told == [_stored(store)]
    done = {0: replace(job.operation.steps[0], state="done", message="made")}
    with store.begin() as tx:
        tx.operations.advance(job.operation, done, whole=False)
    assert told[1:] == [_stored(store)]
    with store.begin() as tx:
        tx.operations.advance(replace(job.operation, attempt=7), {}, whole=False)
        tx.operations.is_newest("op", 1)
    assert len(told) == 2
    with store.begin() as tx:
        tx.operations.advance(job.operation, done, whole=False)
        tx.operations.request_cancel("op")
    assert told[2:] == [None]  # it is not known as a whole: who listens reads it


def _stored(store: Store) -> Watched:
    with store.read() as tx:
        job = tx.operations.get("op")
    return Watched(operation=job.operation, revision=job.revision)


def test_what_a_step_writes_of_a_vm_leaves_the_rest_of_it_as_it_is(store: Store) -> None:
    one = replace(vm("vm", 1), id="vm", operation="op", lease_end=5.0, addresses=("10.0.0.1",))
    with store.begin() as tx:
        tx.vms.add(one)
        tx.vms.set_state("vm", "stuck", operation="another")
        assert tx.vms.find_id("vm") == one
        tx.vms.set_state("vm", "running", operation="op")
        assert tx.vms.find_id("vm") == replace(one, state="running")
        tx.vms.set_addresses("vm", ["10.0.0.2"])
        assert tx.vms.find_id("vm") == replace(one, state="running", addresses=("10.0.0.2",))
        tx.vms.set_state("vm", "stopped", operation="op")
        assert tx.vms.find_id("vm") == replace(one, state="stopped", addresses=())
        devices = (replace(one.devices[0], parent="0000:41:00.5"),)
        tx.vms.change("vm", devices=tuple(devices))
        assert tx.vms.find_id("vm") == replace(one, state="stopped", addresses=(), devices=devices)
        tx.vms.deallocate("vm", "lease_over", devices)
        assert tx.vms.find_id("vm") == replace(
            one, state="stopped", wanted="stopped", addresses=(), devices=devices, deallocated="lease_over"
        )


def test_who_takes_up_an_operation_begins_its_first_step_unless_one_has_begun_or_it_is_cancelled(
    store: Store,
) -> None:
    waits = replace(operation(), steps=tuple(replace(one, state="pending") for one in operation().steps))
    with store.begin() as tx:
        for name in ("first", "again", "cancelled"):
            tx.operations.add(replace(waits, id=name, state="queued"), host="h1", inputs={})
        tx.operations.request_cancel("cancelled")
        tx.operations.take_up("again", 1.0)
    with store.begin() as tx:
        jobs = {name: tx.operations.take_up(name, 7.0) for name in ("first", "again", "cancelled")}
    begun = {name: job.operation.steps[0] for name, job in jobs.items() if job is not None}
    assert {name: (step.state, step.started_at) for name, step in begun.items()} == {
        "first": ("running", 7.0),
        "again": ("running", 1.0),
        "cancelled": ("pending", None),
    }
    with store.read() as tx:
        assert all(tx.operations.get(name).operation == job.operation for name, job in jobs.items() if job is not None)
