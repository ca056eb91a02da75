# SPDX-License-Identifier: Apache-2.0
"""GPUs that are unfit are emptied and reset by themselves, where the site says so: one of a host, so many a day."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Fatal
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.health_states import Breaker, GpuHealth, closed_to_mend
from orchestrator.core.hosts.mig_layout import MigLayout
from orchestrator.core.maintenance.maintenance import Maintenance
from orchestrator.reconcile.ill_gpus import IllGpus
from orchestrator.reconcile.rebooted_gpus import PATIENCE_S
from orchestrator.services.maintenance.maintenances import MaintenanceService, WantedDrain
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.fakes.fake_host import Crash, no_fault
from tests.operations.moves import MIGRATABLE, OTHER, plane_of_hosts, where
from tests.operations.test_driver_upgrades import go_on

DAY_S = 86400.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """``train`` on the first GPU of its host."""
    made = plane_of_hosts(tmp_path)
    vm = create_vm("train", profile=MIGRATABLE.name)
    made.services.vms.create(replace(vm, host=L40S_HOST, gpu=made.machine(L40S_HOST).gpus[0].address))
    made.engine.drain()
    yield made
    made.store.close()


def struck(plane: ControlPlane, number: int = 0, xid: int = 95, at: int = 10) -> None:
    plane.machine(L40S_HOST).gpus[number].signals = (GpuSignal(name=f"xid-{xid}", at=at),)
    plane.findings.observe(L40S_HOST)


def round_of(plane: ControlPlane, a_day: int = 1) -> None:
    """One, and all that it begins to its end."""
    services = plane.services
    IllGpus(plane.store, services.maintenances, services.gpu_cards, a_day).round()
    go_on(plane) if services.maintenances.list() else None
    plane.engine.drain()


def states(plane: ControlPlane) -> list[str]:
    """Of the host's GPUs."""
    addresses = (gpu.address for gpu in plane.machine(L40S_HOST).gpus)
    return [plane.services.gpu_health.get(L40S_HOST, address).health.state for address in addresses]


def resets(plane: ControlPlane) -> int:
    with plane.store.read() as tx:
        return sum(operation.kind == "reset_gpu" for operation in tx.operations.list())


def test_an_unfit_gpu_is_emptied_then_reset_then_on_watch_and_nothing_more_is_done(plane: ControlPlane) -> None:
    struck(plane)
    round_of(plane)
    assert (where(plane)["train"], states(plane)) == ((OTHER, "running"), ["quarantined", "healthy"])
    round_of(plane)
    assert states(plane) == ["watch", "healthy"]
    round_of(plane)
    assert (resets(plane), len(plane.services.maintenances.list())) == (1, 1)


@pytest.mark.parametrize("why", ["off", "breaker", "needs a reboot", "watch alone"])
def test_nothing_is_done_by_itself_where_nobody_has_said_so_or_it_is_no_help(plane: ControlPlane, why: str) -> None:
    struck(plane, xid={"needs a reboot": 79, "watch alone": 63}.get(why, 95))
    if why == "breaker":
        with plane.store.begin() as tx:
            tx.gpu_health.put_breaker(Breaker(opened=1.0, why="a test"))
    if why == "needs a reboot":
        reboot = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
        plane.machine(L40S_HOST).gpus[0].signals = (GpuSignal(name="xid-154", text=reboot, at=9),)
        plane.findings.observe(L40S_HOST)
    round_of(plane, a_day=0 if why == "off" else 5)
    assert plane.services.maintenances.list() == ()
    assert where(plane)["train"] == (L40S_HOST, "running")


def test_one_gpu_of_a_host_at_once_and_no_more_of_the_site_in_a_day_than_it_says(plane: ControlPlane) -> None:
    struck(plane, 0)
    struck(plane, 1)
    for _ in range(3):
        round_of(plane, a_day=1)
    assert sorted(states(plane)) == ["unfit", "watch"]
    plane.world.clock.sleep(DAY_S + 1)
    for _ in range(3):
        round_of(plane, a_day=1)
    assert (states(plane), resets(plane)) == (["healthy", "watch"], 2)


def test_a_gpu_whose_vm_has_no_place_elsewhere_waits_for_it_and_is_not_reset(plane: ControlPlane) -> None:
    plane.services.hosts.cordon(OTHER, None)
    struck(plane)
    for _ in range(3):
        round_of(plane, a_day=5)
    assert (where(plane)["train"], resets(plane)) == ((L40S_HOST, "running"), 0)
    assert states(plane)[0] == "quarantined"


def test_a_gpu_that_is_emptied_names_the_vms_on_it_and_none_beside_it(plane: ControlPlane) -> None:
    train, other = (gpu.address for gpu in plane.machine(L40S_HOST).gpus)
    beside = create_vm("beside", profile=MIGRATABLE.name)
    plane.services.vms.create(replace(beside, host=L40S_HOST, gpu=other))
    plane.engine.drain()
    plane.services.hosts.cordon(OTHER, None)
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(), train)
    progress = plane.services.maintenances.now(go_on(plane)).progress
    assert progress == {L40S_HOST: "1 VM on it: default/train is running"}


def stubborn(plane: ControlPlane) -> None:
    """Resets fail there."""
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("gpu.stubborn", "no", details="it reads as ff") if (moment, name) == ("before", "BindVfio") else None
    )


def reboots(plane: ControlPlane) -> int:
    return plane.machine(L40S_HOST).boot - 1


def ill_gpu(plane: ControlPlane) -> GpuHealth:
    return plane.services.gpu_health.get(L40S_HOST, plane.machine(L40S_HOST).gpus[0].address).health


def test_a_gpu_that_a_person_empties_or_resets_is_left_to_people(plane: ControlPlane) -> None:
    ill, other = (gpu.address for gpu in plane.machine(L40S_HOST).gpus)
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(), other)
    with plane.store.begin() as tx:
        for gpu in (ill, other):
            tx.gpu_health.put(L40S_HOST, gpu, closed_to_mend(None, 1.0, by="uid:1000", reason="mine"), changed=True)
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    stubborn(plane)
    plane.services.gpu_cards.reset(L40S_HOST, ill)
    for _ in range(4):
        round_of(plane, a_day=5)
    plane.hosts.strike = no_fault
    assert (states(plane), resets(plane), reboots(plane)) == (["quarantined", "quarantined"], 1, 0)
    assert "its reset failed" in ill_gpu(plane).cause


def test_where_a_reset_failed_its_host_reboots_once_and_the_gpu_is_tried_then(plane: ControlPlane) -> None:
    struck(plane)
    stubborn(plane)
    for _ in range(2):
        round_of(plane)
    assert (ill_gpu(plane).state, ill_gpu(plane).reboot, ill_gpu(plane).evidence[0]) == (
        "quarantined", "due", "it reads as ff"
    )  # fmt: skip
    round_of(plane)
    assert (ill_gpu(plane).reboot, reboots(plane)) == ("begun", 1)
    round_of(plane)
    assert (ill_gpu(plane).state, ill_gpu(plane).reboot, reboots(plane)) == ("watch", None, 1)
    assert plane.hosts.effects.count("BindVfio") == 1, "it is tried and not reset again"


def test_one_that_is_not_well_after_the_reboot_is_a_persons_and_no_second_reboot_follows(plane: ControlPlane) -> None:
    struck(plane)
    stubborn(plane)
    for _ in range(3):
        round_of(plane)
    plane.machine(L40S_HOST).gpus[0].signals = (GpuSignal(name="xid-79", at=77),)
    for _ in range(6):
        round_of(plane, a_day=9)
        plane.world.clock.sleep(DAY_S)
    ill = ill_gpu(plane)
    assert (ill.state, ill.reboot, reboots(plane)) == ("quarantined", "over", 1)
    assert "after its host's reboot" in ill.cause
    assert "it reads as ff" in ill.evidence, "what the reboot had the host forget"
    assert any("Xid 79" in line for line in ill.evidence)


def test_one_that_is_gone_after_the_reboot_is_a_persons(plane: ControlPlane) -> None:
    struck(plane)
    stubborn(plane)
    for _ in range(3):
        round_of(plane)
    card = plane.machine(L40S_HOST).gpus.pop(0)
    plane.observer.observe(L40S_HOST)
    for _ in range(3):
        round_of(plane)
    plane.machine(L40S_HOST).gpus.insert(0, card)
    assert (ill_gpu(plane).reboot, reboots(plane)) == ("over", 1)
    assert "is not on its bus" in ill_gpu(plane).evidence[0]


@pytest.mark.parametrize("why", ["breaker", "layouts", "busy"])
def test_no_host_reboots_by_itself_while_it_may_not(plane: ControlPlane, why: str) -> None:
    struck(plane)
    stubborn(plane)
    for _ in range(2):
        round_of(plane)
    if why == "breaker":
        with plane.store.begin() as tx:
            tx.gpu_health.put_breaker(Breaker(opened=1.0, why="a test"))
    elif why == "layouts":
        with plane.store.begin() as tx:
            other = plane.machine(L40S_HOST).gpus[1].address
            tx.hosts.keep_layout(L40S_HOST, MigLayout(gpu=other, on=False))
    else:
        plane.services.maintenances.drain(L40S_HOST, WantedDrain())
    for _ in range(3):
        round_of(plane)
    assert (ill_gpu(plane).reboot, reboots(plane)) == ("due", 0)


def test_a_host_whose_vms_do_not_leave_serves_on_and_is_not_rebooted(plane: ControlPlane) -> None:
    beside = create_vm("beside", profile=MIGRATABLE.name)
    plane.services.vms.create(replace(beside, host=L40S_HOST, gpu=plane.machine(L40S_HOST).gpus[1].address))
    plane.engine.drain()
    struck(plane)
    stubborn(plane)
    for _ in range(2):
        round_of(plane)
    plane.services.hosts.cordon(OTHER, None)
    round_of(plane)
    assert plane.services.hosts.get(L40S_HOST).host.cordoned
    plane.world.clock.sleep(PATIENCE_S + 1)
    for _ in range(3):
        round_of(plane)
    assert (ill_gpu(plane).reboot, reboots(plane), where(plane)["beside"]) == ("over", 0, (L40S_HOST, "running"))
    assert not plane.services.hosts.get(L40S_HOST).host.cordoned


def test_a_crash_between_the_words_reboots_no_host_twice(plane: ControlPlane) -> None:
    struck(plane)
    stubborn(plane)
    for _ in range(2):
        round_of(plane)
    services = plane.services

    class Dying(MaintenanceService):
        def drain(self, *_words: object, **_more: object) -> Maintenance:
            raise Crash

    dying = Dying(**{field.name: getattr(services.maintenances, field.name) for field in fields(MaintenanceService)})
    with pytest.raises(Crash):
        IllGpus(plane.store, dying, services.gpu_cards, 1).round()
    for _ in range(3):
        round_of(plane)
    assert (ill_gpu(plane).reboot, reboots(plane)) == ("over", 0)


@pytest.mark.parametrize("why", ["no answer", "a person is at it", "another controller does"])
def test_an_empty_gpu_is_not_reset_by_itself_while_its_host_is_away_or_a_persons(plane: ControlPlane, why: str) -> None:
    struck(plane)
    round_of(plane)
    assert states(plane)[0] == "quarantined"
    machine, services = plane.machine(L40S_HOST), plane.services
    if why == "no answer":
        machine.answers = False
        plane.observer.observe(L40S_HOST)
    elif why == "a person is at it":
        services.maintenances.drain(L40S_HOST, WantedDrain())
        go_on(plane)
    else:
        IllGpus(plane.store, services.maintenances, services.gpu_cards, 1, lambda: False).round()
    round_of(plane) if why != "another controller does" else None
    assert (resets(plane), states(plane)[0]) == (0, "quarantined")
    if why == "no answer":
        machine.answers = True
        plane.observer.observe(L40S_HOST)
        round_of(plane)
        assert (resets(plane), states(plane)[0]) == (1, "watch")


def test_a_reset_that_began_by_itself_and_a_person_cancelled_is_left_to_people(plane: ControlPlane) -> None:
    struck(plane)
    round_of(plane)
    services = plane.services
    IllGpus(plane.store, services.maintenances, services.gpu_cards, 1).round()
    with plane.store.read() as tx:
        (reset,) = (operation for operation in tx.operations.list() if operation.kind == "reset_gpu")
    services.operations.cancel(reset.id)
    plane.engine.drain()
    for _ in range(3):
        round_of(plane)
    assert (resets(plane), states(plane)[0]) == (1, "quarantined")
    ill = plane.machine(L40S_HOST).gpus[0].address
    services.gpu_cards.reset(L40S_HOST, ill)
    plane.engine.drain()
    assert states(plane)[0] == "watch"
