# SPDX-License-Identifier: Apache-2.0
"""A host dies: its VMs start elsewhere where their disks are reached, run once whatever fails, and it gives them up
when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound, VgpuctlError
from orchestrator.core.maintenance.maintenance import Maintenance
from orchestrator.core.vms.volume import shared_files
from orchestrator.reconcile.dead_hosts import DeadHosts
from orchestrator.services.maintenance.maintenances import WantedDrain, WantedEvacuation
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash, no_fault
from tests.operations import pools, suspending
from tests.operations.evacuations import comes_back, dies, fencing
from tests.operations.moves import MIGRATABLE, OTHER
from tests.operations.test_driver_upgrades import go_on

BY_HAND = WantedEvacuation(confirm=L40S_HOST, fence="hand")
BY_AGENT = replace(BY_HAND, fence="agent")
IN_POOL = ("train", "rests")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """On one host a VM in a pool with a data volume, one there that is stopped, and one on the host's own disk."""
    made = control_plane(tmp_path)
    pools.with_running_vm(made)
    for name, pool, start in (("rests", "fast", False), ("own", None, True)):
        wish = replace(create_vm(name, profile=MIGRATABLE.name, start=start), host=L40S_HOST, pool=pool)
        made.services.vms.create(wish)
    made.engine.drain()
    yield made
    made.store.close()


def evacuated(plane: ControlPlane, wanted: WantedEvacuation = BY_HAND) -> Maintenance:
    plane.services.maintenances.evacuate(L40S_HOST, wanted)
    return go_on(plane)


def vms(plane: ControlPlane) -> dict[str, tuple[str, str]]:
    return {vm.spec.name: (vm.host, vm.state) for vm in plane.services.vms.list(None)}


def running(plane: ControlPlane, name: str) -> list[str]:
    """Hosts that run it now."""
    vm = plane.services.vms.get("default", name)
    hosts = (L40S_HOST, OTHER)
    return [host for host in hosts if plane.machine(host).domains.get(vm.id, ("", False))[1]]


def test_vms_in_pools_start_elsewhere_and_the_others_are_named_with_what_to_do(plane: ControlPlane) -> None:
    dies(plane)
    its = evacuated(plane)
    turn = its.host(L40S_HOST)
    assert vms(plane) == {"train": (OTHER, "running"), "rests": (OTHER, "stopped"), "own": (L40S_HOST, "running")}
    assert (turn.phase, running(plane, "train")) == ("empty", [OTHER])
    assert "VM default/own stays: VM own cannot move: its disk is on its host, which is dead" in turn.why
    assert plane.services.hosts.get(L40S_HOST).host.cordoned
    pool = plane.machine(OTHER).pools["fast"]
    files = shared_files(plane.services.vms.get("default", "train"))
    assert {pool.leases[file] for file in files} == {plane.machine(OTHER).machine_id}
    plane.services.vms.stop("default", "train")
    plane.services.vms.delete("default", "rests")
    plane.engine.drain()
    assert running(plane, "train") == []


@pytest.mark.fault("F104")
def test_a_host_that_is_back_cannot_start_them_and_gives_them_up_before_it_serves(plane: ControlPlane) -> None:
    dies(plane)
    evacuated(plane)
    machine, vm = plane.machine(L40S_HOST), plane.services.vms.get("default", "train")
    assert vm.id in machine.domains
    epoch = plane.services.hosts.get(L40S_HOST).host.epoch
    comes_back(plane)
    with pytest.raises(Conflict, match="has not given up VMs that run elsewhere"):
        plane.services.hosts.uncordon(L40S_HOST)
    its = go_on(plane)
    assert vm.id not in machine.domains
    assert {owner for owner, _, _ in machine.volumes.values()} == {plane.services.vms.get("default", "own").id}
    assert plane.services.hosts.get(L40S_HOST).host.epoch > epoch, "what was on its way to it is refused"
    assert (its.host(L40S_HOST).vms, running(plane, "train")) == ((), [OTHER])
    assert set(plane.machine(OTHER).pools["fast"].files) >= set(shared_files(vm)), "its disk is where it was"
    plane.services.vms.start("default", "rests")
    plane.engine.drain()
    plane.findings.observe(L40S_HOST)
    for finding in plane.findings.list(host=L40S_HOST):
        assert finding.finding.code in {"host.cordoned", "vm.not_running"}, finding
    plane.services.vms.stop("default", "own")
    plane.engine.drain()


def test_one_that_ran_on_though_somebody_said_it_was_off_runs_once(plane: ControlPlane) -> None:
    """What QEMU's locks do on hosts: a disk that somebody has open is not taken over."""
    plane.machine(L40S_HOST).answers = False
    plane.observer.observe(L40S_HOST)

    def strike(_number: int, moment: str, name: str) -> Conflict | None:
        open_there = plane.machine(L40S_HOST).domains[train.id][1]
        refused = moment == "before" and name == "ShareDisks" and open_there and taking(plane)
        return Conflict("pool.open_elsewhere", "another host has the disk open for writing") if refused else None

    train = plane.services.vms.get("default", "train")
    plane.hosts.strike = strike
    evacuated(plane)
    for _ in range(3):
        turn = go_on(plane).host(L40S_HOST)
    assert (running(plane, "train"), vms(plane)["train"]) == ([L40S_HOST], (L40S_HOST, "running"))
    assert "VM default/train could not be moved in 3 tries" in turn.why
    assert train.id not in plane.machine(OTHER).domains, "nothing is left of the tries"
    comes_back(plane)
    assert go_on(plane).host(L40S_HOST).phase == "empty"
    assert running(plane, "train") == [L40S_HOST]


def test_one_whose_disk_is_locked_for_a_while_is_tried_until_it_starts_elsewhere(plane: ControlPlane) -> None:
    """NFS keeps the locks of a client that died for its lease; no command would get the VM out."""

    def strike(_number: int, moment: str, name: str) -> Conflict | None:
        locked = (moment, name) == ("before", "ShareDisks") and taking(plane)
        return Conflict("pool.open_elsewhere", "another host has the disk open for writing") if locked else None

    dies(plane)
    plane.hosts.strike = strike
    evacuated(plane)
    for _ in range(4):  # each time it rests no more
        turn = go_on(plane).host(L40S_HOST)
    assert "VM default/train could not be moved in 3 tries; it is tried again" in turn.why
    plane.hosts.strike = no_fault
    turn = go_on(plane).host(L40S_HOST)
    assert (running(plane, "train"), vms(plane)["rests"]) == ([OTHER], (OTHER, "stopped"))
    assert "tries" not in turn.why


@pytest.mark.parametrize(
    ("wanted", "error", "code"),
    [
        (replace(BY_HAND, confirm="l40s-2"), InvalidInput, "host.not_confirmed"),
        (BY_AGENT, Conflict, "fence.not_configured"),
        (BY_HAND, Conflict, "host.answers"),
    ],
)
def test_what_is_not_certain_is_refused_and_nothing_is_changed(
    plane: ControlPlane, wanted: WantedEvacuation, error: type[VgpuctlError], code: str
) -> None:
    before = vms(plane)
    with pytest.raises(error) as caught:
        evacuated(plane, wanted)
    assert caught.value.code == code
    assert (vms(plane), plane.services.maintenances.list()) == (before, ())


def test_a_host_that_nobody_knows_is_told_before_its_fence_agent(plane: ControlPlane) -> None:
    with pytest.raises(NotFound, match="nope"):
        plane.services.maintenances.evacuate("nope", replace(BY_AGENT, confirm="nope"))


def test_its_fence_agent_switches_it_off_first(plane: ControlPlane) -> None:
    fencing(plane).known.add(L40S_HOST)
    plane.machine(L40S_HOST).answers = False
    plane.observer.observe(L40S_HOST)
    assert running(plane, "train") == [L40S_HOST], "it is cut off and runs on"
    evacuated(plane, BY_AGENT)
    assert running(plane, "train") == [OTHER]


def test_one_that_is_back_before_its_turn_is_not_switched_off(plane: ControlPlane) -> None:
    fencing(plane).known.add(L40S_HOST)
    plane.machine(L40S_HOST).answers = False
    plane.observer.observe(L40S_HOST)
    plane.services.maintenances.evacuate(L40S_HOST, BY_AGENT)
    comes_back(plane)
    turn = go_on(plane).host(L40S_HOST)
    assert (running(plane, "train"), running(plane, "own")) == ([L40S_HOST], [L40S_HOST])
    assert (turn.phase, turn.why) == ("kept", f"host {L40S_HOST} is ready again, and stays on")


def test_nothing_starts_elsewhere_while_its_power_is_not_seen_off(plane: ControlPlane) -> None:
    fencing(plane).known.add(L40S_HOST)
    fencing(plane).broken.add(L40S_HOST)
    dies(plane)
    its = evacuated(plane, BY_AGENT)
    assert (its.state, its.host(L40S_HOST).phase) == ("done", "kept")
    assert "cannot be seen" in its.host(L40S_HOST).why
    assert vms(plane)["train"] == (L40S_HOST, "running")
    fencing(plane).broken.clear()
    assert evacuated(plane, BY_AGENT).host(L40S_HOST).phase == "empty"
    assert running(plane, "train") == [OTHER]


def test_one_that_has_no_place_starts_once_there_is_one(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    dies(plane)
    assert "VM default/train stays" in evacuated(plane).host(L40S_HOST).why
    plane.services.hosts.uncordon(OTHER)
    go_on(plane)
    assert (running(plane, "train"), vms(plane)["rests"]) == ([OTHER], (OTHER, "stopped"))


def test_an_evacuation_is_not_cancelled_and_ends_when_somebody_has_the_host_serve(plane: ControlPlane) -> None:
    dies(plane)
    evacuated(plane)
    with pytest.raises(Conflict, match=f"goes on until host {L40S_HOST} is back or given up"):
        plane.services.maintenances.cancel()
    with pytest.raises(Conflict):
        plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    comes_back(plane)
    go_on(plane)
    plane.services.vms.stop("default", "own")
    plane.engine.drain()
    plane.findings.observe(L40S_HOST)
    plane.services.hosts.uncordon(L40S_HOST)
    assert go_on(plane).state == "done"
    assert not plane.services.hosts.get(L40S_HOST).host.cordoned
    assert vms(plane)["train"] == (OTHER, "running")


def test_after_a_restore_a_host_gives_nothing_up_by_itself(plane: ControlPlane) -> None:
    """One of them may have come back since the backup, and live there."""
    dies(plane)
    evacuated(plane)
    plane.machine(L40S_HOST).answers = True
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(L40S_HOST), restored="unseen"))
    plane.observer.observe(L40S_HOST)
    turn = go_on(plane).host(L40S_HOST)
    assert "the database was restored" in turn.why
    assert plane.services.vms.get("default", "train").id in plane.machine(L40S_HOST).domains


KINDS = ("ShareDisks", "WriteSeed", "DefineDomain", "StartDomain", "MakeVgpu")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("how", ["fails", "crashes"])
def test_whatever_fails_it_runs_once_at_most_and_once_in_the_end(
    plane: ControlPlane, kind: str, moment: str, how: str
) -> None:
    left = [2]

    def strike(_number: int, at: str, name: str) -> BaseException | None:
        assert len(running(plane, "train")) <= 1
        if (at, name) != (moment, kind) or not left[0]:
            return None
        left[0] -= 1
        return Crash() if how == "crashes" else Fatal("disk.full", "no room")

    dies(plane)
    plane.hosts.strike = strike
    for _ in range(6):
        try:
            if not plane.services.maintenances.list():
                plane.services.maintenances.evacuate(L40S_HOST, BY_HAND)
            go_on(plane)
        except Crash:
            with plane.store.read() as tx:
                plane.engine.waiting = [operation.id for operation in tx.operations.list(unfinished=True)]
        with plane.store.read() as tx:
            stuck = [operation.id for operation in tx.operations.list() if operation.state == "stuck"]
        for operation in stuck:
            plane.services.operations.retry(operation)
    plane.hosts.strike = no_fault
    comes_back(plane)
    go_on(plane)
    assert (running(plane, "train"), vms(plane)["train"]) == ([OTHER], (OTHER, "running"))
    assert vms(plane)["rests"] == (OTHER, "stopped")
    with plane.store.read() as tx:
        assert tx.operations.list(unfinished=True) == ()


def test_by_itself_only_where_the_site_says_so_and_never_for_a_network_that_is_cut(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    plane.add_host(T4_HOST)
    fencing(plane).known |= {L40S_HOST, T4_HOST}
    dead = DeadHosts(store=plane.store, maintenances=plane.services.maintenances, after_s=0.0, at_most=1)
    dies(plane)
    plane.world.clock.sleep(1000)
    dead.round()
    assert plane.services.maintenances.list() == (), "it is not said"
    dead = replace(dead, after_s=600.0)
    dies(plane, T4_HOST)
    for _ in range(2):
        dead.round()
    assert plane.services.maintenances.list() == (), "two are away"
    assert ["2 hosts" in record.getMessage() for record in caplog.records] == [True], "once"
    plane.machine(T4_HOST).answers = True
    plane.observer.observe(T4_HOST)
    dead.round()
    dead.round()
    go_on(plane)
    assert [its.title for its in plane.services.maintenances.list()] == ["the evacuation"]
    assert running(plane, "train") == [OTHER]


def test_one_that_went_long_before_keeps_no_other_from_it_and_one_that_was_evacuated_does_for_a_day(
    plane: ControlPlane,
) -> None:
    plane.add_host(T4_HOST)
    fencing(plane).known |= {L40S_HOST}
    dead = DeadHosts(store=plane.store, maintenances=plane.services.maintenances, after_s=600.0, at_most=1)
    dies(plane, T4_HOST)
    plane.world.clock.sleep(1500)
    for host in (L40S_HOST, OTHER):
        plane.observer.observe(host)
    dies(plane)
    plane.world.clock.sleep(1000)
    dead.round()
    go_on(plane)
    assert running(plane, "train") == [OTHER]
    fencing(plane).known |= {T4_HOST}
    for day, evacuations in ((0, 1), (86400, 2)):
        plane.world.clock.sleep(day)
        plane.machine(T4_HOST).answers = True
        plane.observer.observe(T4_HOST)
        dies(plane, T4_HOST)
        plane.world.clock.sleep(700)
        dead.round()
        assert [its.title for its in plane.services.maintenances.list()] == ["the evacuation"] * evacuations


def test_of_a_suspended_vm_the_memory_goes_with_its_host_and_its_claim_is_right(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    pools.with_running_vm(plane)
    suspending.suspend(plane)
    plane.engine.drain()
    dies(plane)
    evacuated(plane)
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, vm.suspended_bytes) == (OTHER, "stopped", None)
    with plane.store.read() as tx:
        claim = tx.claims.find(vm.id)
        (moved,) = [item for item in tx.operations.list() if item.kind == "evacuate_stopped_vm"]
    assert claim is not None
    assert (claim.host, claim.disk_bytes) == (OTHER, vm.spec.host_disk_bytes)
    assert any("its memory was on the host that is dead" in warning for warning in moved.warnings)
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert running(plane, "train") == [OTHER]
    plane.store.close()


def test_a_start_does_not_say_that_a_vm_runs_whose_host_is_silent(plane: ControlPlane) -> None:
    dies(plane)
    with pytest.raises(Conflict) as refused:
        plane.services.vms.start("default", "train")
    assert refused.value.code == "vm.host_silent"


def test_it_is_not_deleted_while_it_leaves(plane: ControlPlane) -> None:
    """Its dead host would be asked, and what has just started elsewhere would run on."""
    dies(plane)
    plane.services.moving.move(MoveVm(name="train", tenant="default", evacuate=True))
    with pytest.raises(Conflict) as refused:
        plane.services.vms.delete("default", "train")
    assert refused.value.code == "vm.busy"
    plane.engine.drain()
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert not any(plane.machine(OTHER).domains.values())


def test_a_vm_whose_evacuation_was_taken_back_starts_where_it_was_once_its_host_is_back(plane: ControlPlane) -> None:
    def strike(_number: int, moment: str, name: str) -> Fatal | None:
        return Fatal("disk.full", "no room") if (moment, name) == ("after", "ShareDisks") and taking(plane) else None

    dies(plane)
    plane.hosts.strike = strike
    evacuated(plane)
    plane.hosts.strike = no_fault
    assert vms(plane)["train"] == (L40S_HOST, "running")
    file = plane.services.vms.get("default", "train").volume
    assert plane.machine(OTHER).pools["fast"].leases[file] == plane.machine(OTHER).machine_id, "it took it all the same"
    comes_back(plane)
    go_on(plane)
    plane.services.hosts.uncordon(L40S_HOST)
    go_on(plane)
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    assert running(plane, "train") == [L40S_HOST]


def taking(plane: ControlPlane) -> bool:
    """Whether disks are being taken over."""
    with plane.store.read() as tx:
        due = tx.operations.list(unfinished=True)
    return any(step.name == "take_over.1" and step.state == "running" for operation in due for step in operation.steps)
