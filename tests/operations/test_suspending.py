# SPDX-License-Identifier: Apache-2.0
"""What a suspended VM holds, what is refused about it, and onto what it may resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.units import GIB, MIB
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.operations import suspending

_WHOLE = Offering(name="whole", origin="site", kind="passthrough", gpu_count=1)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    suspending.suspended(T4_HOST)(made)
    yield made
    made.store.close()


def claimed_bytes(plane: ControlPlane) -> int:
    with plane.store.read() as tx:
        (claim,) = tx.claims.list()
    return claim.disk_bytes


def test_it_holds_room_for_its_memory_and_its_vgpus_until_it_runs(plane: ControlPlane) -> None:
    vm = plane.services.vms.get("default", "train")
    assert (vm.state, vm.wanted) == ("stopped", "stopped")
    assert vm.suspended_bytes == (vm.spec.memory_mib + 2048 + 64) * MIB
    assert claimed_bytes(plane) == vm.spec.disk_bytes + vm.suspended_bytes
    assert plane.machine(T4_HOST).mdevs == {}
    suspending.resume(plane)
    plane.engine.drain()
    after = plane.services.vms.get("default", "train")
    assert (after.state, after.wanted, after.suspended_bytes, after.devices) == ("running", "running", None, vm.devices)
    assert claimed_bytes(plane) == vm.spec.disk_bytes


def test_a_start_resumes_it_and_a_stop_finds_it_so(plane: ControlPlane) -> None:
    assert plane.services.vms.stop("default", "train").existing
    assert suspending.suspend(plane) is None
    operation = plane.services.vms.start("default", "train").operation
    assert operation is not None
    plane.engine.drain()
    ended = plane.services.operations.get(operation)
    assert (ended.kind, ended.state, ended.warnings) == ("resume_vm", "done", ())


def test_what_needs_a_vm_that_runs_names_what_starts_one_that_is_at_rest(plane: ControlPlane) -> None:
    vms = plane.services.vms
    with pytest.raises(Conflict) as refused:
        vms.restart("default", "train")
    assert refused.value.code == "vm.suspended"
    suspending.discard(plane)
    plane.engine.drain()
    for act in (lambda: vms.restart("default", "train"), lambda: suspending.suspend(plane)):
        with pytest.raises(Conflict) as refused:
            act()
        assert refused.value.hint == "'vgpuctl start-vm train --tenant default' starts it"


def test_what_changes_a_stopped_vm_is_refused(plane: ControlPlane) -> None:
    vms, moving = plane.services.vms, plane.services.moving
    changes: tuple[Callable[[], object], ...] = (
        lambda: vms.rename("default", "train", "other"),
        lambda: moving.move(MoveVm(name="train", tenant="default")),
    )
    for change in changes:
        with pytest.raises(Conflict) as refused:
            change()
        assert refused.value.code == "vm.suspended"
        assert "'vgpuctl vm resume train --tenant default'" in (refused.value.hint or "")


def test_onto_another_driver_it_is_refused_before_it_begins_and_its_memory_stays(plane: ControlPlane) -> None:
    plane.machine(T4_HOST).driver_version = "590.10.01"
    plane.observer.observe(T4_HOST)
    starts: tuple[Callable[[], object], ...] = (
        lambda: suspending.resume(plane),
        lambda: plane.services.vms.start("default", "train"),
    )
    for start in starts:
        with pytest.raises(Conflict) as refused:
            start()
        assert refused.value.code == "vm.not_resumable"
        assert "move.host_driver" in {reason.code for reason in refused.value.reasons}
        assert "discard-suspended train --tenant default" in (refused.value.hint or "")
    assert plane.services.vms.get("default", "train").suspended_bytes is not None
    suspending.discard(plane)
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").suspended_bytes is None
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"


def test_it_is_told_of_where_it_may_move(plane: ControlPlane) -> None:
    moves = plane.services.moves.to_host("default", "train", T4_HOST)
    assert moves.may("suspended")
    assert "move.suspended" in {limit.code for limit in moves.of("cold").limits}


def test_one_that_is_not_suspended_is_neither_resumed_nor_discarded(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    suspending.running(T4_HOST)(plane)
    for begin in (suspending.resume, suspending.discard):
        with pytest.raises(Conflict) as refused:
            begin(plane)
        assert refused.value.code == "vm.not_suspended"
        assert "suspend " not in str(refused.value.hint), "it is in use"
    plane.store.close()


def test_without_room_on_its_host_it_runs_on(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    suspending.running(T4_HOST)(plane)
    plane.machine(T4_HOST).free_bytes = 2 * GIB
    plane.observer.observe(T4_HOST)
    with pytest.raises(NoCapacity) as refused:
        suspending.suspend(plane)
    assert refused.value.code == "host.disk"
    assert plane.services.vms.get("default", "train").state == "running"
    plane.store.close()


def test_the_state_of_a_whole_gpu_cannot_be_kept(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(L40S_HOST)
    with plane.store.begin() as tx:
        tx.offerings.put(_WHOLE)
    plane.services.vms.create(create_vm(profile=_WHOLE.name))
    plane.engine.drain()
    with pytest.raises(Conflict) as refused:
        suspending.suspend(plane)
    assert refused.value.code == "vm.not_suspendable"
    assert refused.value.reasons[0].code == "move.whole_gpu"
    plane.store.close()
