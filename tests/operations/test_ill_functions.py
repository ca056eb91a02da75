# SPDX-License-Identifier: Apache-2.0
"""One virtual function of a GPU is at fault: no new vGPU is put on it, and the rest of its GPU is given out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, NoCapacity, NotFound
from orchestrator.core.gpu.health import SEVERAL, GpuSignal
from orchestrator.core.gpu.health_states import CLEAN_S
from orchestrator.core.operation import Operation
from orchestrator.services.maintenance.maintenances import WantedDrain
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm
from tests.fakes.fake_machine import FakeGpu
from tests.fakes.recount import miscounted
from tests.operations.gpu_cards import SWAPPED, maintain
from tests.operations.moves import MIGRATABLE, OTHER, plane_of_hosts, where
from tests.operations.test_driver_upgrades import go_on


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """``first`` and ``second`` on one GPU, each on a function of its own."""
    made = plane_of_hosts(tmp_path)
    for name in ("first", "second"):
        created(made, name)
    yield made
    with made.store.read() as tx:
        assert list(miscounted(tx)) == []
    made.store.close()


def gpu(plane: ControlPlane) -> FakeGpu:
    return plane.machine(L40S_HOST).gpus[0]


def created(plane: ControlPlane, name: str) -> str:
    """PCI address of its virtual function."""
    vm = create_vm(name, profile=MIGRATABLE.name)
    plane.services.vms.create(replace(vm, host=L40S_HOST, gpu=gpu(plane).address))
    plane.engine.drain()
    return function(plane, name)


def function(plane: ControlPlane, name: str) -> str:
    return plane.services.vms.get("default", name).devices[0].parent


def struck(plane: ControlPlane, *functions: str, at: int = 1_700_000_000) -> None:
    """Its host tells of a fault of each of these alone."""
    gpu(plane).signals = tuple(GpuSignal(name="aer-fatal", at=at, function=at_fault) for at_fault in functions)
    plane.findings.observe(L40S_HOST)


def state(plane: ControlPlane, address: str) -> str:
    return plane.services.gpu_health.get(L40S_HOST, address).health.state


def ill(plane: ControlPlane) -> dict[str, str]:
    return {known.gpu: known.health.state for known in plane.services.gpu_health.all().gpus}


def test_a_signal_of_one_function_closes_that_one_and_no_vm_comes_to_it(plane: ControlPlane) -> None:
    first = function(plane, "first")
    struck(plane, first)
    assert ill(plane) == {first: "unfit"}
    assert plane.services.gpu_health.get(L40S_HOST, first).function_of == gpu(plane).address
    assert state(plane, gpu(plane).address) == "healthy"
    assert where(plane) == {"first": (L40S_HOST, "running"), "second": (L40S_HOST, "running")}, "what is on it stays"
    (problem,) = plane.services.gpus.get(L40S_HOST, gpu(plane).address).gpu.problems
    assert problem.startswith(f"no new vGPU on function {first}: it must be reset first: fatal PCIe errors")
    plane.services.vms.delete("default", "first")
    plane.engine.drain()
    assert created(plane, "third") not in {first, function(plane, "second")}


def test_its_fault_ends_and_it_is_on_watch_then_well(plane: ControlPlane) -> None:
    first = function(plane, "first")
    struck(plane, first)
    struck(plane)
    assert ill(plane) == {first: "watch"}
    plane.world.clock.sleep(float(CLEAN_S))
    struck(plane)
    assert ill(plane) == {}


def test_a_vm_that_is_started_again_gets_another_function(plane: ControlPlane) -> None:
    first = function(plane, "first")
    plane.services.vms.stop("default", "first")
    plane.engine.drain()
    plane.services.gpu_health.quarantine(L40S_HOST, first, "its guests hang")
    plane.services.vms.start("default", "first")
    plane.engine.drain()
    assert where(plane)["first"] == (L40S_HOST, "running")
    assert function(plane, "first") not in {first, function(plane, "second")}


def test_emptying_a_function_moves_the_vm_that_has_it_and_no_other(plane: ControlPlane) -> None:
    first = function(plane, "first")
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(), first)
    go_on(plane)
    assert where(plane) == {"first": (OTHER, "running"), "second": (L40S_HOST, "running")}
    assert ill(plane) == {first: "quarantined"}, "until it is returned"
    plane.services.gpu_health.give_back(L40S_HOST, first, "a new driver")
    assert ill(plane) == {first: "watch"}


def test_several_functions_at_fault_are_the_gpu(plane: ControlPlane) -> None:
    functions = gpu(plane).function_addresses()[:SEVERAL]
    struck(plane, *functions[:-1])
    assert state(plane, gpu(plane).address) == "healthy"
    struck(plane, *functions)
    known = plane.services.gpu_health.get(L40S_HOST, gpu(plane).address)
    assert known.health.state == "unfit"
    assert known.health.cause.endswith(f"several of its virtual functions are out of service: {', '.join(functions)}")
    struck(plane)
    assert set(ill(plane).values()) == {"watch"}


def test_functions_that_a_person_has_closed_say_nothing_of_their_gpu(plane: ControlPlane) -> None:
    functions = gpu(plane).function_addresses()[-SEVERAL:]
    for address in functions:
        plane.services.gpu_health.quarantine(L40S_HOST, address, "guests hang")
    plane.findings.observe(L40S_HOST)
    assert ill(plane) == dict.fromkeys(functions, "quarantined")


def emptied(plane: ControlPlane) -> str:
    """PCI address of the function that ``first`` had: it was at fault and is emptied, and then all of its GPU is."""
    first = function(plane, "first")
    struck(plane, first)
    plane.services.maintenances.drain(L40S_HOST, WantedDrain(), first)
    go_on(plane)
    plane.services.vms.delete("default", "second")
    plane.engine.drain()
    return first


def reset(plane: ControlPlane) -> Operation:
    started = plane.services.gpu_cards.reset(L40S_HOST, gpu(plane).address)
    plane.engine.drain()
    return plane.services.operations.get(str(started.operation))


def test_a_reset_that_goes_well_ends_what_emptying_a_function_closed(plane: ControlPlane) -> None:
    first = emptied(plane)
    assert reset(plane).state == "done"
    assert ill(plane) == {gpu(plane).address: "watch", first: "watch"}


def test_a_reset_does_not_return_a_function_that_a_person_has_closed(plane: ControlPlane) -> None:
    closed = gpu(plane).function_addresses()[-1]
    plane.services.gpu_health.quarantine(L40S_HOST, closed, "guests hang")
    first = emptied(plane)
    assert reset(plane).state == "done"
    assert ill(plane) == {gpu(plane).address: "watch", first: "watch", closed: "quarantined"}


@pytest.mark.parametrize("number", [1, SEVERAL])
def test_what_is_told_of_functions_does_not_fail_the_trial_of_their_gpu(
    plane: ControlPlane, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied(plane)
    functions, paused = gpu(plane).function_addresses()[-number:], plane.world.clock.sleep

    def tell(at: int) -> None:
        gpu(plane).signals = tuple(GpuSignal(name="aer-fatal", at=at, function=address) for address in functions)

    def strike(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "RestoreDriver"):
            tell(5)

    def sleep(seconds: float) -> None:
        tell(6)
        paused(seconds)

    plane.hosts.strike = strike
    monkeypatch.setattr(plane.world.clock, "sleep", sleep)
    assert reset(plane).state == "done"
    assert {ill(plane)[address] for address in functions} == {"unfit"}


def test_the_evidence_of_a_reset_that_failed_is_of_the_gpu_alone(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = emptied(plane), GpuSignal(name="xid-79", at=5)
    paused = plane.world.clock.sleep

    def sleep(seconds: float) -> None:
        gpu(plane).signals = (GpuSignal(name="aer-fatal", at=4, function=first), again)
        paused(seconds)

    monkeypatch.setattr(plane.world.clock, "sleep", sleep)
    assert reset(plane).state == "undone"
    health = plane.services.gpu_health.get(L40S_HOST, gpu(plane).address).health
    assert [line for line in health.evidence if not line.startswith("bug report")] == [again.words]


def bound(plane: ControlPlane) -> str:
    """PCI address of the function of ``first``, which is stopped; all functions of its GPU are claimed."""
    gpu(plane).functions, gpu(plane).enabled = 2, True
    plane.findings.observe(L40S_HOST)
    plane.services.vms.stop("default", "first")
    plane.engine.drain()
    return function(plane, "first")


def test_a_vm_whose_function_is_closed_does_not_start_where_no_other_is_free(plane: ControlPlane) -> None:
    first = bound(plane)
    plane.services.gpu_health.quarantine(L40S_HOST, first, "guests hang")
    with pytest.raises(Conflict) as refused:
        plane.services.vms.start("default", "first")
    assert refused.value.code == "gpu.out_of_service"
    assert "'vgpuctl vm move first --tenant default'" in str(refused.value.hint)
    assert where(plane)["first"] == (L40S_HOST, "stopped")
    plane.services.vms.delete("default", "second")
    plane.engine.drain()
    plane.services.vms.start("default", "first")
    plane.engine.drain()
    assert where(plane)["first"] == (L40S_HOST, "running")
    assert function(plane, "first") != first


def test_a_start_that_finds_its_function_closed_and_no_other_free_says_so(plane: ControlPlane) -> None:
    first = bound(plane)
    started = plane.services.vms.start("default", "first")
    plane.services.gpu_health.quarantine(L40S_HOST, first, "guests hang")
    plane.engine.drain()
    ended = plane.services.operations.get(str(started.operation))
    assert (ended.state, ended.error and ended.error["code"]) == ("undone", "gpu.no_capacity")
    assert ended.error is not None
    assert "virtual function" in str(ended.error["reasons"])
    assert "we did not make" not in str(ended.error)
    assert f"'vgpuctl health return {L40S_HOST} {first} --reason TEXT'" in str(ended.error["hint"])


def test_a_function_is_reset_with_its_gpu_alone(plane: ControlPlane) -> None:
    with pytest.raises(Conflict) as refused:
        plane.services.gpu_cards.reset(L40S_HOST, function(plane, "first"))
    assert refused.value.code == "gpu.is_function"
    assert refused.value.hint == f"'vgpuctl health reset {L40S_HOST} {gpu(plane).address}'"
    with pytest.raises(NotFound):
        plane.services.gpu_health.quarantine(L40S_HOST, "0000:7f:00.4", "no such thing")


def test_findings_name_the_function_its_vm_and_no_other(plane: ControlPlane) -> None:
    first = function(plane, "first")
    struck(plane, first)
    listed = [stored.finding for stored in plane.services.findings.list(host=None)]
    told = {(finding.code, finding.subject) for finding in listed if finding.code.endswith("fault")}
    assert told == {("gpu.fault", f"GPU {first}"), ("vm.gpu_fault", "VM default/first")}


def test_capacity_counts_a_place_less_where_functions_bound_it(plane: ControlPlane) -> None:
    def fits() -> int:
        (row,) = plane.services.capacity.capacity(Question(profile=MIGRATABLE.name, host=L40S_HOST))
        return row.fits_now

    used, empty = plane.machine(L40S_HOST).gpus
    before = fits()
    for bound in (used, empty):
        bound.functions, bound.enabled = 3, True
    plane.findings.observe(L40S_HOST)
    assert fits() == before - 2
    for number, ill_one in enumerate((used, empty), start=3):
        plane.services.gpu_health.quarantine(L40S_HOST, ill_one.function_addresses()[-1], "never came up")
        assert fits() == before - number
    with pytest.raises(NoCapacity):
        created(plane, "third")


def test_what_is_known_of_a_function_goes_with_its_card(plane: ControlPlane) -> None:
    first = function(plane, "first")
    plane.services.gpu_health.quarantine(L40S_HOST, first, "its guests hang")
    maintain(plane.machine(L40S_HOST), SWAPPED[L40S_HOST])
    plane.findings.observe(L40S_HOST)
    plane.services.gpu_cards.accept(L40S_HOST, ())
    plane.engine.drain()
    assert function(plane, "first") != first
    assert ill(plane) == {function(plane, "first"): "quarantined"}
