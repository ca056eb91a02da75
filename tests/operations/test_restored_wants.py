# SPDX-License-Identifier: Apache-2.0
"""After a restore the database wants what was wanted at the backup: nothing follows from that until people have said
what is wanted now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.server.backup import back_up, restore
from orchestrator.services.vms.deallocating import begin_deallocation
from tests.fakes.control_plane import KEY, L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.drivers import with_bundle
from tests.operations.test_after_restore import look_and_repair
from tests.operations.test_driver_upgrades import NEW, OLD, go_on, keeper, phases, wanted

NOW = 1_800_000_000.0
HOUR_S = 3600
LEASE_S = 1000 * HOUR_S


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A VM that runs."""
    old = tmp_path / "old"
    (old / "secrets").mkdir(parents=True)
    (old / "secrets" / "database_key").write_bytes(KEY)
    made = control_plane(old)
    made.add_host(T4_HOST)
    made.services.vms.create(replace(create_vm(), end=WantedEnd(after_s=LEASE_S)))
    made.engine.drain()
    yield made
    made.store.close()


@contextmanager
def restored(plane: ControlPlane, directory: Path, since: Callable[[], object]) -> Iterator[ControlPlane]:
    """From a backup as of now; ``since`` is what happened after it was made."""
    back_up(directory / "old", directory / "backup")
    since()
    restore(directory / "new", directory / "backup", NOW)
    made = control_plane(directory / "new", hosts=plane.hosts)
    made.ids.count = plane.ids.count
    made.world.clock.sleep(plane.world.clock.now() - made.world.clock.now())
    made.look(T4_HOST)
    yield made
    made.store.close()


def is_settled(plane: ControlPlane) -> bool:
    """Once it was found so, and looked at again as any other host."""
    for _ in range(2):
        plane.look(T4_HOST)
    return plane.services.hosts.get(T4_HOST).host.restored is None


def codes(plane: ControlPlane) -> set[str]:
    return {one.finding.code for one in plane.findings.list(host=T4_HOST)}


def stop(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()


def start(plane: ControlPlane) -> None:
    plane.services.vms.start("default", "train")
    plane.engine.drain()


def upgrade_to(plane: ControlPlane, phase: str) -> None:
    """As far as that phase, whose operations have ended."""
    for version in (OLD, NEW):
        with_bundle(plane, version)
    plane.services.driver_upgrades.start(wanted(hosts=(T4_HOST,), policy="wait" if phase == "emptying" else "stop"))
    while phases(plane.services.maintenances.get()) != {T4_HOST: phase}:
        plane.engine.drain()
        keeper(plane).round()
    plane.engine.drain()


def finish(plane: ControlPlane, *, stopped: bool) -> None:
    stop(plane)
    go_on(plane)
    assert phases(plane.services.maintenances.get()) == {T4_HOST: "done"}
    if not stopped:
        start(plane)


@pytest.mark.fault("F99")
@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("phase", ["emptying", "swapping"])
def test_a_driver_upgrade_that_was_under_way_in_the_backup_touches_no_vm_after_the_restore(
    plane: ControlPlane, tmp_path: Path, phase: str, stopped: bool
) -> None:
    """It has ended since, and its user has started or stopped his VM."""
    upgrade_to(plane, phase)
    with restored(plane, tmp_path, lambda: finish(plane, stopped=stopped)) as after:
        before = after.machine(T4_HOST).state()
        go_on(after)
        look_and_repair(after)
        assert after.machine(T4_HOST).state() == before
        upgrade = after.services.maintenances.get()
        assert (phases(upgrade), "restored" in upgrade.host(T4_HOST).why) == ({T4_HOST: "failed"}, True)
        assert "host.maintenance_failed" in codes(after)


def test_a_driver_upgrade_that_goes_on_after_a_restore_leaves_hosts_that_are_not_settled(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.add_host(L40S_HOST)
    for version in (OLD, NEW):
        with_bundle(plane, version)
    stop(plane)
    with restored(plane, tmp_path, lambda: start(plane)) as after:
        after.look(L40S_HOST)
        for version in (OLD, NEW):
            with_bundle(after, version)
        before = after.machine(T4_HOST).state()
        after.services.driver_upgrades.start(wanted(canary=0, max_unavailable=2))
        assert phases(go_on(after)) == {L40S_HOST: "done", T4_HOST: "waiting"}
        assert after.machine(T4_HOST).state() == before
        start(after)
        assert is_settled(after)
        assert phases(go_on(after)) == {L40S_HOST: "done", T4_HOST: "done"}


@pytest.mark.fault("F99")
def test_a_lease_that_ended_since_the_backup_ends_no_vm_until_somebody_has_said_so(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """It may have been extended."""
    with restored(plane, tmp_path, lambda: plane.world.clock.sleep(LEASE_S + 1)) as after:
        look_and_repair(after)
        assert after.services.vms.get("default", "train").state == "running"
        assert {"host.restored", "vm.lease_in_doubt"} <= codes(after)
        after.services.vms.extend("default", "train", WantedEnd(after_s=LEASE_S))
        assert is_settled(after)
        assert codes(after) == set()
        assert after.services.vms.get("default", "train").state == "running"


def test_a_vm_whose_lease_is_not_to_be_extended_is_stopped_and_gives_its_place_back(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with restored(plane, tmp_path, lambda: plane.world.clock.sleep(LEASE_S + 1)) as after:
        stop(after)
        assert is_settled(after)
        after.look(T4_HOST)
        assert after.services.vms.get("default", "train").deallocated == "lease_over"


@pytest.mark.fault("F99")
def test_a_vm_that_was_started_since_the_backup_goes_on_when_its_user_says_that_it_shall_run(
    plane: ControlPlane, tmp_path: Path
) -> None:
    stop(plane)
    with restored(plane, tmp_path, lambda: start(plane)) as after:
        before = after.machine(T4_HOST).state()
        assert "vm.running" in codes(after)
        start(after)
        assert after.services.vms.get("default", "train").wanted == "running"
        assert is_settled(after)
        assert codes(after) == set()
        assert after.machine(T4_HOST).state() == before


def test_a_vm_that_runs_without_a_place_in_the_database_is_stopped_before_it_gets_one(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with plane.store.begin() as tx:
        vm = tx.vms.find("default", "train")
        assert vm is not None
        operation = begin_deallocation(tx, vm, "preempted", clock=plane.world.clock, ids=plane.ids)
    plane.engine.submit(operation.id)
    plane.engine.drain()
    with restored(plane, tmp_path, lambda: start(plane)) as after:
        with pytest.raises(Conflict, match="its place was given back") as refused:
            start(after)
        assert refused.value.code == "vm.running"
        stop(after)
        start(after)
        vm = after.services.vms.get("default", "train")
        assert (vm.state, vm.deallocated, is_settled(after), codes(after)) == ("running", None, True, set())
