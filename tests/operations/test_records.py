# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.operations.journal import Suspended, attempt
from tests.fakes.cleaned import CLEANED
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    return made


def accepted(plane: ControlPlane) -> list[tuple[str, str]]:
    with plane.store.read() as tx:
        return sorted((one.action, one.subject) for one in tx.audit.all() if one.outcome == "accepted")


def test_every_operation_has_one_audit_record_beside_it_and_a_refused_one_has_none(plane: ControlPlane) -> None:
    vms = plane.services.vms
    vms.create(create_vm())
    plane.engine.drain()
    vms.stop("default", "train")
    plane.engine.drain()
    vms.delete("default", "train")
    plane.engine.drain()
    before = accepted(plane)
    begun = plane.services.operations.list(unfinished=False, limit=100)
    assert before == sorted((one.kind, one.subject_name) for one in begun)
    with pytest.raises(InvalidInput):
        vms.create(replace(create_vm(), memory_mib=1 << 20))
    assert accepted(plane) == before


def test_an_attempt_that_was_overtaken_writes_nothing_more(plane: ControlPlane) -> None:
    operation_id = str(plane.services.vms.create(create_vm()).operation)
    with plane.store.begin() as tx:
        operation = tx.operations.get(operation_id).operation
        tx.operations.update(replace(operation, attempt=2))
    with pytest.raises(Suspended), attempt(plane.store, operation_id, 1) as tx:
        tx.vms.remove(operation.subject, CLEANED)
    with attempt(plane.store, operation_id, 2) as tx:
        assert tx.vms.find("default", "train") is not None
