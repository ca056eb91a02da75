# SPDX-License-Identifier: Apache-2.0
"""A stopped VM that goes to another host: where it is afterwards, what it claims, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal, NoCapacity, VgpuctlError
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.server.backup import back_up, restore
from orchestrator.services.messages import MoveVm
from orchestrator.sim.machine import SimulatedLedger
from tests.fakes.control_plane import KEY, L40S_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash
from tests.fakes.recount import miscounted
from tests.operations.moves import OTHER, hosts, move, with_stopped_vm


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    with_stopped_vm(made)
    yield made
    made.store.close()


def claimed(plane: ControlPlane) -> dict[str, list[str]]:
    """Host → who claims a place there."""
    with plane.store.read() as tx:
        assert list(miscounted(tx)) == []
        vms = {vm.id: vm for host in (L40S_HOST, OTHER) for vm in tx.vms.list(host=host)}
        claims = tx.claims.list()
    return {
        host: sorted(vms[claim.vm].spec.name for claim in claims if claim.host == host) for host in (L40S_HOST, OTHER)
    }


def run(plane: ControlPlane, operation: str | None) -> str:
    assert operation is not None
    Runner(plane.world, plane.journal, DEFINITIONS).run(operation)
    return plane.services.operations.get(operation).state


def test_it_is_on_the_other_host_with_the_disk_it_had_and_nothing_is_left_behind(plane: ControlPlane) -> None:
    before = plane.services.vms.get("default", "train")
    volume, uuid = before.volume, before.id
    operation = move(plane)
    assert claimed(plane) == {L40S_HOST: ["train"], OTHER: ["train"]}, "both, until it is settled"
    assert plane.services.vms.get("default", "train").state == "moving"
    assert run(plane, operation) == "done"
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, vm.id, vm.spec.host) == (OTHER, "stopped", uuid, None)
    assert claimed(plane) == {L40S_HOST: [], OTHER: ["train"]}
    source, target = plane.machine(L40S_HOST), plane.machine(OTHER)
    assert target.written[volume] == source.machine_id, "copied, and not made anew"
    assert [source.volumes, source.seeds, source.domains, source.written] == [{}, {}, {}, {}]
    assert set(target.domains) == {uuid}
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"
    assert len(target.vf_types) == 1
    assert not source.vf_types


def test_it_goes_back_to_where_it_was(plane: ControlPlane) -> None:
    assert run(plane, move(plane)) == "done"
    assert run(plane, move(plane)) == "done"
    assert plane.services.vms.get("default", "train").host == L40S_HOST
    assert claimed(plane) == {L40S_HOST: ["train"], OTHER: []}


def test_how_long_the_disk_takes_is_told_beside_what_was_forecast_and_learned_from(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forecast() -> tuple[float | None, float | None]:
        plan = plane.services.moving.plan(MoveVm(tenant="default", name="train"))
        return plan.copy_low_s, plan.copy_high_s

    def message(operation: str) -> str:
        (copy,) = (step for step in plane.services.operations.get(operation).steps if step.name == "copy_disk.1")
        return copy.message

    copy_volume = plane.hosts.copy_volume

    def copied(*of: Any) -> ActionResult:
        plane.world.clock.sleep(12.0)
        return copy_volume(*of)

    monkeypatch.setattr(plane.hosts, "copy_volume", copied)
    assert forecast() == (None, None)
    first = str(move(plane))
    assert run(plane, first) == "done"
    assert "forecast" not in message(first)
    low_s, high_s = forecast()
    assert low_s is not None
    assert high_s is not None
    second = str(move(plane))
    assert run(plane, second) == "done"
    assert f"forecast {low_s:.1f} to {high_s:.1f} s" in message(second)
    with plane.store.read() as tx:
        kept = tx.disk_copies.of_operation(second)
    assert kept is not None
    assert low_s < 12.0 < high_s
    assert kept.seconds == pytest.approx(12.0)
    assert (kept.source, kept.target, kept.low_s, kept.high_s) == (OTHER, L40S_HOST, low_s, high_s)


def test_nothing_is_learned_from_a_copy_that_was_held_back(plane: ControlPlane) -> None:
    wanted = MoveVm(tenant="default", name="train", max_bytes_per_s=10**6)
    operation = str(plane.services.moving.move(wanted).operation)
    assert run(plane, operation) == "done"
    with plane.store.read() as tx:
        assert tx.disk_copies.of_operation(operation) is None


def test_nobody_finds_the_place_that_is_held_for_it(plane: ControlPlane) -> None:
    move(plane)
    vms = plane.services.vms
    assert [vm.spec.name for vm in vms.list(None)] == ["train"]
    with plane.store.read() as tx:
        (place,) = tx.vms.list(host=OTHER)
        assert tx.vms.find("default", place.id) is None
        assert sum(tx.fleet.vm_counts(None).values()) == 1


def test_a_vm_that_moves_is_neither_started_nor_deleted_nor_moved_again(plane: ControlPlane) -> None:
    move(plane)
    vms = plane.services.vms
    for act in (vms.start, vms.delete, lambda tenant, name: vms.rename(tenant, name, "other")):
        with pytest.raises(Conflict) as refused:
            act("default", "train")
        assert refused.value.code == "vm.busy"
    with pytest.raises(Conflict) as refused:
        move(plane)
    assert refused.value.code == "vm.busy"


def test_hosts_that_it_is_between_are_neither_removed_nor_given_up(plane: ControlPlane) -> None:
    move(plane)
    for host in (L40S_HOST, OTHER):
        with pytest.raises(Conflict) as refused:
            plane.services.hosts.remove(host)
        assert refused.value.code == "host.has_vms"
        plane.machine(host).answers = False
        plane.observer.observe(host)
        with pytest.raises(Conflict) as refused:
            plane.services.hosts.forget(host, confirm=host)
        assert refused.value.code == "host.has_moves"


@pytest.mark.parametrize("host,code", [(L40S_HOST, "vm.stays"), ("nowhere", "host.unknown")])
def test_where_it_cannot_go_is_refused_and_nothing_is_changed(plane: ControlPlane, host: str, code: str) -> None:
    before = plane.services.vms.get("default", "train")
    for act in (plane.services.moving.plan, plane.services.moving.move):
        with pytest.raises(VgpuctlError) as refused:
            act(MoveVm(name="train", tenant="default", host=host))
        assert refused.value.code == code
    assert plane.services.vms.get("default", "train") == before


def test_where_no_place_is_free_it_stays(plane: ControlPlane) -> None:
    for number in range(4):
        vm = replace(create_vm(f"other-{number}", profile="NVIDIA L40S-12Q", start=False), host=OTHER)
        plane.services.vms.create(vm)
    plane.engine.drain()
    with pytest.raises(NoCapacity):
        move(plane)
    assert plane.services.vms.get("default", "train").state == "stopped"


def test_what_has_what_lies_on_its_host_stays_there(plane: ControlPlane) -> None:
    plane.services.volumes.create("default", "data", 2 * 1024**3)
    plane.services.volumes.attach("default", "data", "train")
    plane.engine.drain()
    plane.services.disk_snapshots.create("default", "train", "before")
    plane.engine.drain()
    with pytest.raises(Conflict, match="data") as refused:
        move(plane)
    assert refused.value.code == "vm.stays"
    assert "snapshot" in refused.value.message  # all that is in the way at once
    assert all(way in str(refused.value.hint) for way in ("volume detach data train", "snapshot delete train before"))


def test_a_full_disk_or_a_host_that_is_away_leaves_it_whole_where_it_was(plane: ControlPlane) -> None:
    before = plane.services.vms.get("default", "train")
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("host.disk_full", "the host's disk is full") if (moment, name) == ("before", "copy_volume") else None
    )
    assert run(plane, move(plane)) == "undone"
    after = plane.services.vms.get("default", "train")
    assert replace(after, operation=None) == replace(before, operation=None)
    assert claimed(plane) == {L40S_HOST: ["train"], OTHER: []}
    assert not plane.machine(OTHER).volumes


def test_cancelled_on_its_way_it_is_taken_back_and_later_it_is_not(plane: ControlPlane) -> None:
    operation = str(move(plane))
    plane.services.operations.cancel(operation)
    assert run(plane, operation) == "undone"
    assert plane.services.vms.get("default", "train").host == L40S_HOST
    operation = str(move(plane))
    plane.hosts.strike = lambda _, moment, name: Crash() if (moment, name) == ("before", "DeleteVolume") else None
    with pytest.raises(Crash):
        run(plane, operation)
    with pytest.raises(Conflict):
        plane.services.operations.cancel(operation)
    plane.hosts.strike = lambda *_: None
    assert run(plane, operation) == "done"
    assert plane.services.vms.get("default", "train").host == OTHER


def test_its_source_is_away_after_it_has_changed_hosts_and_it_goes_on_when_that_is_back(plane: ControlPlane) -> None:
    operation = str(move(plane))

    def leaves(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "DefineDomain"):
            plane.machine(L40S_HOST).answers = False

    plane.hosts.strike = leaves
    plane.engine.drain()
    waiting = plane.services.operations.get(operation)
    assert waiting.host_wait is not None
    assert waiting.host_wait.host == L40S_HOST
    assert L40S_HOST in waiting.steps[-2].message
    assert plane.services.vms.get("default", "train").host == OTHER
    assert claimed(plane) == {L40S_HOST: ["train"], OTHER: ["train"]}
    plane.look(OTHER)
    assert plane.services.operations.get(operation).host_wait is not None, "that the other one answers changes nothing"
    plane.machine(L40S_HOST).answers = True
    plane.look(L40S_HOST)
    assert plane.services.operations.get(operation).state == "done"
    assert claimed(plane) == {L40S_HOST: [], OTHER: ["train"]}


def test_its_target_dies_and_it_is_abandoned_whole_where_it_was(plane: ControlPlane) -> None:
    operation = str(move(plane))

    def dies(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "copy_volume"):
            plane.machine(OTHER).answers = False

    plane.hosts.strike = dies
    plane.engine.drain()
    plane.services.operations.abandon(operation)
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state) == (L40S_HOST, "stopped")
    assert claimed(plane) == {L40S_HOST: ["train"], OTHER: []}
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"


def test_nothing_that_it_has_on_either_host_is_a_leftover_to_the_reconciler(plane: ControlPlane) -> None:
    operation = str(move(plane))
    plane.hosts.strike = lambda _, moment, name: Crash() if (moment, name) == ("before", "DeleteVolume") else None
    with pytest.raises(Crash):
        run(plane, operation)
    for host in (L40S_HOST, OTHER):
        assert [
            stored.finding.code for stored in plane.findings.observe(host) if stored.finding.code.startswith("orphan")
        ] == []


def test_two_vms_do_not_get_one_place(tmp_path: Path) -> None:
    made = control_plane(tmp_path)
    hosts(made)
    for name, host in (("one", L40S_HOST), ("two", L40S_HOST), *((f"other-{n}", OTHER) for n in range(3))):
        made.services.vms.create(replace(create_vm(name, profile="NVIDIA L40S-12Q", start=False), host=host))
    made.engine.drain()
    made.services.moving.move(MoveVm(name="one", tenant="default"))
    with pytest.raises(NoCapacity):
        made.services.moving.move(MoveVm(name="two", tenant="default"))
    made.engine.drain()
    assert made.services.vms.get("default", "one").host == OTHER
    made.store.close()


ENDS: dict[str, tuple[str, str, str]] = {
    "it had moved, and runs": ("move", "done", OTHER),
    "it was taken back": ("cancel", "undone", L40S_HOST),
    "it had moved, and came back": ("there and back", "undone", L40S_HOST),
    "nothing more was done": ("nothing", "undone", L40S_HOST),
    "both have it": ("killed", "undone", L40S_HOST),
    "the host that it left has been half cleared": ("killed later", "done", OTHER),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_backup_of_the_middle_of_a_move_is_restored_and_it_is_where_its_hosts_show_it(
    tmp_path: Path, end: str
) -> None:
    happens, state, host = ENDS[end]
    _key(tmp_path / "old")
    before = control_plane(tmp_path / "old")
    with_stopped_vm(before)
    operation = str(move(before))
    back_up(tmp_path / "old", tmp_path / "backup")
    _goes_on(before, operation, happens)
    before.store.close()
    restore(tmp_path / "new", tmp_path / "backup", before.world.clock.now())
    plane = control_plane(tmp_path / "new", hosts=before.hosts)
    plane.ids.count = before.ids.count
    for name in (L40S_HOST, OTHER):
        plane.look(name)
    plane.hosts.strike = lambda *_: None
    plane.services.operations.retry(operation)
    assert plane.services.operations.get(operation).state == state
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state) == (host, "running" if happens == "move" else "stopped")
    assert claimed(plane) == {L40S_HOST: [], OTHER: [], host: ["train"]}
    plane.store.close()


def _goes_on(plane: ControlPlane, operation: str, happens: str) -> None:
    """After the backup."""
    moments = {"killed": "UndefineDomain", "killed later": "DeleteVolume"}
    if happens in moments:
        plane.hosts.strike = lambda _, moment, name: Crash() if (moment, name) == ("before", moments[happens]) else None
        with pytest.raises(Crash):
            run(plane, operation)
        return
    if happens == "cancel":
        plane.services.operations.cancel(operation)
    if happens != "nothing":
        run(plane, operation)
    if happens == "there and back":
        run(plane, move(plane))
    if happens == "move":
        plane.services.vms.start("default", "train")
        plane.engine.drain()


def _key(state: Path) -> None:
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "database_key").write_bytes(KEY)


@pytest.mark.parametrize("host", [L40S_HOST, OTHER])
@pytest.mark.parametrize("at", ["copy_volume", "DefineDomain", "UndefineDomain"])
def test_a_host_loses_its_ledger_meanwhile_and_gets_it_back_with_what_is_the_vms(
    plane: ControlPlane, host: str, at: str
) -> None:
    operation = str(move(plane))

    def loses(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", at):
            plane.hosts.strike = lambda *_: None
            machine = plane.machine(host)
            machine.ledger = SimulatedLedger(site=plane.store.site, lost=True)
            machine.foreign.update(machine.domains)

    plane.hosts.strike = loses
    plane.engine.drain()
    plane.look(host)
    plane.findings.repair(host=host)
    plane.engine.drain()
    plane.look(host)
    if plane.services.operations.get(operation).state == "stuck":
        plane.services.operations.retry(operation)
        plane.engine.drain()
    ended = plane.services.operations.get(operation).state
    assert ended in {"done", "undone"}
    there, other = (OTHER, L40S_HOST) if ended == "done" else (L40S_HOST, OTHER)
    assert plane.services.vms.get("default", "train").host == there
    assert claimed(plane) == {there: ["train"], other: []}
    left = plane.machine(other)
    assert [left.volumes, left.seeds, left.domains] == [{}, {}, {}]


def test_what_the_verdict_says_is_what_the_move_does(plane: ControlPlane) -> None:
    """Refused for the same reasons, or begun."""
    vm = plane.services.vms.get("default", "train")
    volume = "data.0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
    for spec in (vm.spec, replace(vm.spec, tpm=True), replace(vm.spec, volumes=(volume,))):
        with plane.store.begin() as tx:
            tx.vms.set_spec(vm.id, spec)
        for host in (L40S_HOST, OTHER):
            limits = plane.services.moves.to_host("default", "train", host).of("cold").limits
            request = MoveVm(name="train", tenant="default", host=host)
            if not limits:
                assert plane.services.moving.plan(request).target == host
                continue
            with pytest.raises(Conflict) as refused:
                plane.services.moving.plan(request)
            assert [reason.code for reason in refused.value.reasons] == [limit.code for limit in limits]
