# SPDX-License-Identifier: Apache-2.0
"""Health of GPUs over time: states, an operator's word, the breaker, and what placement makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from orchestrator.core.actions.gpu_cards import GpuCard
from orchestrator.core.advice.alike import CapacityGpus
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.health_states import BREAKER_LEAST, CLEAN_S
from orchestrator.core.units import GIB
from orchestrator.operations.gpu_health import judge_gpus
from orchestrator.services.vms.capacity import Question
from orchestrator.store.tables import gpus as gpus_table
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_machine import FakeGpu

TYPE = "NVIDIA L40S-12Q"
DAY_S = float(CLEAN_S)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, L40S_HOST) as made:
        yield made


def xid(number: int, at: int = 1_700_000_000, pids: tuple[int, ...] = ()) -> GpuSignal:
    return GpuSignal(name=f"xid-{number}", text="of a test", at=at, pids=pids)


def gpus(plane: ControlPlane) -> list[FakeGpu]:
    return plane.machine(L40S_HOST).gpus


def struck(plane: ControlPlane, gpu: FakeGpu, *signals: GpuSignal) -> str:
    """Its state, once its host tells these."""
    gpu.signals = signals
    plane.findings.observe(L40S_HOST)
    return state(plane, gpu)


def state(plane: ControlPlane, gpu: FakeGpu) -> str:
    return plane.services.gpu_health.get(L40S_HOST, gpu.address).health.state


def free(plane: ControlPlane) -> int:
    (row,) = plane.services.capacity.capacity(Question(profile=TYPE))
    return row.fits_now


def created(plane: ControlPlane, name: str) -> str:
    """PCI address of its GPU."""
    plane.services.vms.create(create_vm(name, profile=TYPE))
    plane.engine.drain()
    return plane.services.vms.get("default", name).devices[0].gpu


def test_a_gpu_is_unfit_then_on_watch_then_healthy_and_every_answer_says_the_same(plane: ControlPlane) -> None:
    ill, *others = gpus(plane)
    before = free(plane)
    assert struck(plane, ill, xid(95)) == "unfit"
    each = free(plane)
    assert each < before
    rows = {row.gpu: row.unusable for row in plane.services.capacity.gpu_map()}
    assert str(rows[ill.address]).startswith("it must be reset first: Xid 95")
    assert plane.services.gpus.get(L40S_HOST, ill.address).gpu.problems == (rows[ill.address],)
    assert all(created(plane, f"beside-{number}") != ill.address for number in range(len(others)))

    assert struck(plane, ill) == "watch"
    assert free(plane) == before - len(others)
    plane.world.clock.sleep(DAY_S)
    assert struck(plane, ill) == "healthy"


def test_a_gpu_on_watch_is_taken_last_and_is_taken(plane: ControlPlane) -> None:
    watched, *_ = gpus(plane)
    assert struck(plane, watched, xid(63)) == "watch"
    total = free(plane)
    taken = [created(plane, f"vm-{number}") for number in range(total)]
    on_watched = [number for number, gpu in enumerate(taken) if gpu == watched.address]
    assert on_watched == list(range(total - len(on_watched), total))
    assert on_watched, "where nothing else is free it serves"
    assert free(plane) == 0


def test_an_operator_quarantines_and_returns_a_gpu_and_what_runs_there_is_left_alone(plane: ControlPlane) -> None:
    address = created(plane, "train")
    gpu = next(one for one in gpus(plane) if one.address == address)
    machine, before = plane.machine(L40S_HOST).state(), free(plane)
    health = plane.services.gpu_health
    assert health.quarantine(L40S_HOST, address, "fan 3 is loud").health.state == "quarantined"
    assert free(plane) < before
    assert struck(plane, gpu, xid(95)) == "quarantined"
    assert struck(plane, gpu) == "quarantined"
    plane.world.clock.sleep(30 * DAY_S)
    assert struck(plane, gpu) == "quarantined", "only a person ends it"
    rows = {row.gpu: row.unusable for row in plane.services.capacity.gpu_map()}
    assert str(rows[address]).endswith(": fan 3 is loud")
    assert health.give_back(L40S_HOST, address, "a new fan").health.state == "watch"
    assert (free(plane), plane.machine(L40S_HOST).state()) == (before, machine)
    told = [(record.action, record.outcome) for record in plane.services.tenancy.audit.list(limit=100)]
    assert ("quarantine_gpu", "fan 3 is loud") in told
    assert ("return_gpu", "a new fan") in told


def test_a_stopped_vm_does_not_start_on_a_gpu_that_is_out_of_service(plane: ControlPlane) -> None:
    address, vms = created(plane, "train"), plane.services.vms
    vms.stop("default", "train")
    plane.engine.drain()
    plane.services.gpu_health.quarantine(L40S_HOST, address, "fan 3 is loud")
    with pytest.raises(Conflict) as refused:
        vms.start("default", "train")
    assert refused.value.code == "gpu.out_of_service"
    assert "'vgpuctl vm move train --tenant default'" in str(refused.value.hint)
    assert "'health return'" in str(refused.value.hint)
    assert vms.get("default", "train").state == "stopped"
    plane.services.gpu_health.give_back(L40S_HOST, address, "a new fan")
    vms.start("default", "train")
    plane.engine.drain()
    assert vms.get("default", "train").state == "running"


def test_a_vm_that_cannot_move_is_not_sent_away_from_a_gpu_that_is_out_of_service(plane: ControlPlane) -> None:
    plane.services.volumes.create("default", "data", GIB)
    plane.services.vms.create(replace(create_vm("train", profile=TYPE), volumes=("data",)))
    plane.engine.drain()
    vms = plane.services.vms
    vms.stop("default", "train")
    plane.engine.drain()
    plane.services.gpu_health.quarantine(L40S_HOST, vms.get("default", "train").devices[0].gpu, "fan 3 is loud")
    with pytest.raises(Conflict) as refused:
        vms.start("default", "train")
    assert str(refused.value.hint).startswith("it cannot move: its data volumes (data) are on its host, and volumes do")


def test_what_was_told_when_a_gpu_was_returned_counts_no_more_and_what_is_new_does(plane: ControlPlane) -> None:
    gpu = gpus(plane)[0]
    assert struck(plane, gpu, xid(95, at=10)) == "unfit"
    plane.services.gpu_health.give_back(L40S_HOST, gpu.address, "it is the rule that is wrong")
    assert struck(plane, gpu, xid(95, at=10)) == "watch"
    assert struck(plane, gpu, xid(95, at=10), xid(79, at=11)) == "unfit"
    assert struck(plane, gpu, xid(95, at=10)) == "watch"
    assert struck(plane, gpu, xid(95, at=9999)) == "unfit"


def test_findings_say_as_placement_does_what_counts_and_what_is_closed(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.core.gpu.health_states.BREAKER_LEAST", 2)
    returned, spared = gpus(plane)[:2]
    struck(plane, returned, xid(95))
    assert "nothing new is put on it" in told(plane)[returned.address]
    plane.services.gpu_health.give_back(L40S_HOST, returned.address, "it is the rule that is wrong")
    assert told(plane) == {}
    assert (struck(plane, returned, xid(95, at=5)), struck(plane, spared, xid(95))) == ("unfit", "watch")
    assert "new VMs are put on it, last" in told(plane)[spared.address]


def told(plane: ControlPlane) -> dict[str, str]:
    """GPU → reason, of findings."""
    found = [one.finding for one in plane.findings.observe(L40S_HOST) if one.finding.code == "gpu.fault"]
    return {finding.subject.split()[-1]: finding.reason for finding in found}


@pytest.mark.parametrize("is_returned", [False, True])
def test_what_a_driver_that_does_not_answer_leaves_out_is_not_over(plane: ControlPlane, *, is_returned: bool) -> None:
    gpu = gpus(plane)[0]
    assert struck(plane, gpu, GpuSignal(name="recovery-gpu_reset")) == "unfit"
    if is_returned:
        plane.services.gpu_health.give_back(L40S_HOST, gpu.address, "it is the rule that is wrong")
    with plane.world.store.begin() as tx:
        snapshot, host = tx.hosts.snapshot(L40S_HOST), tx.hosts.get(L40S_HOST)
        assert snapshot is not None
        silent = [replace(one, signals=(), problems=("NVML does not list this GPU",)) for one in snapshot.gpus]
        judge_gpus(tx, host, replace(snapshot, gpus=tuple(silent)), plane.world.clock.now())
    wanted = "watch" if is_returned else "unfit"
    assert state(plane, gpu) == wanted
    plane.findings.observe(L40S_HOST)
    assert state(plane, gpu) == wanted
    assert len(plane.services.gpu_health.get(L40S_HOST, gpu.address).health.falls) == (not is_returned)


def test_what_lasts_and_is_no_fault_keeps_no_gpu_on_watch_once_an_operator_says_so(plane: ControlPlane) -> None:
    gpu, narrow = gpus(plane)[0], GpuSignal(name="pcie-narrow", text="8 of 16 lanes")
    assert struck(plane, gpu, narrow) == "watch"
    plane.services.gpu_health.give_back(L40S_HOST, gpu.address, "its slot has eight")
    plane.world.clock.sleep(DAY_S)
    assert (struck(plane, gpu, narrow), told(plane)) == ("healthy", {})


def test_words_that_mean_nothing_are_refused(plane: ControlPlane) -> None:
    health, address = plane.services.gpu_health, gpus(plane)[0].address
    with pytest.raises(Conflict, match="nothing keeps VMs off it"):
        health.give_back(L40S_HOST, address, "why")
    with pytest.raises(Conflict, match="nothing to acknowledge"):
        health.acknowledge(L40S_HOST, address)
    with pytest.raises(NotFound) as unknown:
        health.quarantine(L40S_HOST, "0000:ff:00.0", "why")
    assert unknown.value.code == "gpu.not_ours"
    assert unknown.value.message == f"host {L40S_HOST} has no GPU 0000:ff:00.0 that was given to us"
    assert str(unknown.value.hint).startswith("did you mean 0000:")


def test_who_has_seen_a_state_is_kept_until_it_is_another(plane: ControlPlane) -> None:
    gpu = gpus(plane)[0]
    struck(plane, gpu, xid(95))
    health = plane.services.gpu_health
    assert health.acknowledge(L40S_HOST, gpu.address).health.acknowledged is not None
    struck(plane, gpu, xid(95), xid(79))
    assert health.get(L40S_HOST, gpu.address).health.acknowledged is not None
    struck(plane, gpu)
    assert health.get(L40S_HOST, gpu.address).health.acknowledged is None


def test_a_gpu_that_is_no_more_on_its_bus_is_unfit(plane: ControlPlane) -> None:
    machine = plane.machine(L40S_HOST)
    gone = machine.gpus.pop()
    plane.findings.observe(L40S_HOST)
    assert state(plane, gone) == "unfit"
    machine.gpus.append(gone)
    plane.findings.observe(L40S_HOST)
    assert state(plane, gone) == "watch"


def test_more_falls_at_once_than_a_board_has_open_the_breaker_until_a_person_resets_it(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host of fewer GPUs than the breaker asks for: its least number is less here."""
    everything = gpus(plane)
    assert len(everything) < BREAKER_LEAST
    monkeypatch.setattr("orchestrator.core.gpu.health_states.BREAKER_LEAST", 2)
    first, second = everything[:2]
    assert struck(plane, first, xid(119)) == "unfit"
    assert struck(plane, second, xid(119)) == "watch"
    health = plane.services.gpu_health
    assert "became unfit within an hour" in health.all().breaker.why
    plane.world.clock.sleep(10 * DAY_S)
    assert struck(plane, second, xid(119)) == "watch", "time alone resets nothing"
    assert (state(plane, first), struck(plane, first)) == ("unfit", "watch")
    assert health.reset_breaker().breaker.opened is None
    assert struck(plane, second, xid(119)) == "unfit", "it was known before: no new fall"
    assert health.all().breaker.opened is None


def test_a_gpu_that_falls_again_within_the_hour_is_one_that_fell(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.core.gpu.health_states.BREAKER_LEAST", 2)
    gpu = gpus(plane)[0]
    assert [struck(plane, gpu, xid(95)), struck(plane, gpu), struck(plane, gpu, xid(95))] == ["unfit", "watch", "unfit"]
    assert plane.services.gpu_health.all().breaker.opened is None


def test_gpus_of_one_host_that_fall_at_once_are_counted_one_by_one(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.core.gpu.health_states.BREAKER_LEAST", 2)
    first, second = gpus(plane)[:2]
    first.signals = second.signals = (xid(95),)
    plane.findings.observe(L40S_HOST)
    assert sorted([state(plane, first), state(plane, second)]) == ["unfit", "watch"]
    assert "2 of 2 GPUs" in plane.services.gpu_health.all().breaker.why


def test_a_gpu_is_of_its_model_though_its_driver_names_it_no_more_and_though_it_was_there_before_models_were(
    plane: ControlPlane,
) -> None:
    store = plane.world.store
    with store.begin() as tx:
        models, snapshot = tx.gpu_health.models(), tx.hosts.snapshot(L40S_HOST)
        assert snapshot is not None
        lost = [replace(gpu, uuid="", model="NVIDIA 10de:26b9") for gpu in snapshot.gpus]
        assert tx.hosts.put_snapshot(L40S_HOST, replace(snapshot, gpus=tuple(lost)), tx.operations.turn())
        assert tx.gpu_health.models() == models
        assert tx.gpu_health.model(L40S_HOST, lost[0].address) == snapshot.gpus[0].model
    plane.findings.observe(L40S_HOST)
    with store.begin() as tx:
        tx.gpu_health._db.execute(update(gpus_table).values(model=None))
    plane.findings.observe(L40S_HOST)
    with store.read() as tx:
        assert tx.gpu_health.models() == models


def test_what_is_known_goes_with_the_card_and_not_to_another_one(plane: ControlPlane) -> None:
    gpu = gpus(plane)[0]
    plane.services.gpu_health.quarantine(L40S_HOST, gpu.address, "hot")
    moved = {gpu.address: "0000:f1:00.0"}
    with plane.world.store.begin() as tx:
        tx.cards.put(L40S_HOST, (), moved)
    assert plane.services.gpu_health.get(L40S_HOST, "0000:f1:00.0").health.state == "quarantined"
    with plane.world.store.begin() as tx:
        tx.cards.put(L40S_HOST, [GpuCard(address="0000:f1:00.0", uuid="GPU-new", serial=None)], {})
    assert plane.services.gpu_health.get(L40S_HOST, "0000:f1:00.0").health.state == "healthy"


def test_a_quarantine_holds_for_the_card_when_its_host_is_removed_and_added_again(plane: ControlPlane) -> None:
    hot, unfit = gpus(plane)[:2]
    plane.services.gpu_health.quarantine(L40S_HOST, hot.address, "hot")
    assert struck(plane, unfit, xid(95)) == "unfit"
    unfit.signals = ()
    plane.services.hosts.remove(L40S_HOST)
    plane.engine.drain()
    plane.add_host(L40S_HOST)
    assert (state(plane, hot), state(plane, unfit)) == ("quarantined", "healthy")
    plane.services.gpu_health.give_back(L40S_HOST, hot.address, "a new fan")
    plane.services.hosts.remove(L40S_HOST)
    plane.engine.drain()
    plane.add_host(L40S_HOST)
    assert state(plane, hot) == "healthy", "a word that was taken back is not remembered"


def test_a_card_that_was_replaced_is_quarantined_where_it_comes_to_be(plane: ControlPlane) -> None:
    with plane.world.store.begin() as tx:
        former = tx.cards.of_host(L40S_HOST)[0]
    plane.services.gpu_health.quarantine(L40S_HOST, former.address, "hot")
    gpu = next(one for one in gpus(plane) if one.address == former.address)
    card, gpu.card = gpu.card, "new"
    plane.services.gpu_cards.accept(L40S_HOST, [former.address])
    plane.engine.drain()
    assert state(plane, gpu) == "healthy"
    gpu.card = card
    plane.services.gpu_cards.accept(L40S_HOST, [former.address])
    plane.engine.drain()
    assert state(plane, gpu) == "quarantined"


def test_the_audit_names_the_vms_that_were_on_a_gpu_when_it_was_closed(plane: ControlPlane) -> None:
    address = created(plane, "train")
    struck(plane, next(gpu for gpu in gpus(plane) if gpu.address == address), xid(95))
    struck(plane, next(gpu for gpu in gpus(plane) if gpu.address != address), xid(95))
    told = {one.subject: one.outcome for one in plane.services.tenancy.audit.list(limit=9) if one.action == "gpu_unfit"}
    assert told.pop(f"{L40S_HOST}/{address}").endswith("; on it: default/train")
    (other,) = told.values()
    assert other.endswith("; on it: no VM")


def test_lists_tell_the_state_of_each_gpu_and_capacity_how_many_are_closed(plane: ControlPlane) -> None:
    unfit, hot = gpus(plane)[:2]
    health, use = plane.services.gpu_health, plane.services.capacity.use
    assert health.capacity(use()) == CapacityGpus(allocatable=2, unfit=0, quarantined=0)
    struck(plane, unfit, xid(95))
    assert health.capacity(use()) == CapacityGpus(allocatable=1, unfit=1, quarantined=0)
    health.quarantine(L40S_HOST, hot.address, "hot")
    assert health.capacity(use()) == CapacityGpus(allocatable=0, unfit=1, quarantined=1)
    states = {info.gpu.address: info.state for info in plane.services.gpus.list(L40S_HOST)}
    assert states == {unfit.address: "unfit", hot.address: "quarantined"}


def test_capacity_of_whole_gpus_and_the_map_name_those_that_are_closed(plane: ControlPlane) -> None:
    ill, _ = gpus(plane)
    plane.services.gpu_health.quarantine(L40S_HOST, ill.address, "fan 3 is loud")
    (row,) = plane.services.capacity.capacity(Question(profile="gpu:2"))
    assert row.reason is not None
    assert "1 of 2 may not be used, quarantined by" in row.reason.message
    ill.driver = None
    plane.observer.observe(L40S_HOST)
    (drawn, _) = plane.services.capacity.gpu_map()
    assert drawn.unusable is not None
    assert "fan 3 is loud" in drawn.unusable
