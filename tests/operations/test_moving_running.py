# SPDX-License-Identifier: Apache-2.0
"""A VM that runs and goes to another host cold: it runs there afterwards, or again where it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.vms.lease import TenantPolicy
from orchestrator.services.messages import MoveVm
from tests.fakes.control_plane import L40S_HOST, ControlPlane, control_plane
from tests.operations import evacuations, moves
from tests.operations.moves import OTHER, move_running, with_running_vm
from tests.operations.of_one_vm import Case

_KINDS = ("move_vm_cold", "move_running_vm", "evacuate_vm")
_WITH_VGPU = tuple(
    case for case in (*moves.CASES, *evacuations.CASES) if case[1] in _KINDS and case[2] is not moves.with_whole_gpu
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    with_running_vm(made)
    yield made
    made.store.close()


def runs_on(plane: ControlPlane) -> list[str]:
    return [host for host in (L40S_HOST, OTHER) if any(running for _, running in plane.machine(host).domains.values())]


def test_it_runs_on_the_other_host_and_has_its_devices_on_alone(plane: ControlPlane) -> None:
    operation = str(move_running(plane))
    assert plane.services.vms.get("default", "train").state == "moving"
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, vm.wanted, runs_on(plane)) == (OTHER, "running", "running", [OTHER])
    assert vm.addresses
    assert [len(plane.machine(host).vf_types) for host in (L40S_HOST, OTHER)] == [0, 1]


@pytest.mark.parametrize("fails", ["copy_volume", "WriteSeed", "DefineDomain"])
def test_what_fails_before_it_has_changed_hosts_leaves_it_running_where_it_was(plane: ControlPlane, fails: str) -> None:
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("host.disk_full", "the host's disk is full") if (moment, name) == ("before", fails) else None
    )
    operation = str(move_running(plane))
    plane.engine.drain()
    if fails == "DefineDomain":  # which is how it is started again, too
        plane.hosts.strike = lambda *_: None
        plane.services.operations.retry(operation)
        plane.engine.drain()
    assert plane.services.operations.get(operation).state == "undone"
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, runs_on(plane)) == (L40S_HOST, "running", [L40S_HOST])
    assert not plane.machine(OTHER).volumes


def test_it_is_not_stopped_for_a_vgpu_that_cannot_be_made_there(plane: ControlPlane) -> None:
    """Somebody took the GPU's room by hand since its host was seen."""
    operation = str(move_running(plane))
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vgpu.no_room", "the GPU takes no such vGPU now") if (moment, name) == ("before", "MakeVgpu") else None
    )
    plane.hosts.effects.clear()
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "undone"
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, runs_on(plane)) == (L40S_HOST, "running", [L40S_HOST])
    assert "StopDomain" not in plane.hosts.effects


@pytest.mark.parametrize("case", _WITH_VGPU, ids=[case[0] for case in _WITH_VGPU])
@pytest.mark.parametrize("functions", ["off", "taken"])
def test_its_vgpu_is_made_there_as_it_is_at_a_start(tmp_path: Path, case: Case, functions: str) -> None:
    """The host was booted, or somebody took the function by hand, since it was seen."""
    plane = control_plane(tmp_path)
    _, _, before, begin = case
    before(plane)
    operation, machine = str(begin(plane)), plane.machine(OTHER)
    with plane.store.read() as tx:
        (held,) = (device.function for claim in tx.claims.of_host(OTHER) for device in claim.devices)
    assert held is not None
    machine.gpus[0].enabled = functions != "off"
    if functions == "taken":
        machine.vf_types[held] = ("NVIDIA L40S-12Q", None)
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "done"
    vm = plane.services.vms.get("default", "train")
    assert (vm.host, vm.state, vm.devices[0].parent == held) == (OTHER, "running", functions == "off")
    assert machine.vf_types[vm.devices[0].parent][1] == vm.id
    with plane.store.read() as tx:
        assert [one.function for claim in tx.claims.list() for one in claim.devices] == [vm.devices[0].parent]
        changes = [event.change for event in tx.events.new(0, most=999) if event.change.noun == "vm"]
        assert {change.subject for change in changes if change.host == OTHER} == {vm.id}, "a place is no VM"
    plane.store.close()


def test_it_runs_there_before_the_host_that_it_left_is_cleared(plane: ControlPlane) -> None:
    operation = str(move_running(plane))

    def leaves(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "StartDomain"):
            plane.machine(L40S_HOST).answers = False

    plane.hosts.strike = leaves
    plane.engine.drain()
    assert runs_on(plane) == [OTHER]
    wait = plane.services.operations.get(operation).host_wait
    assert wait is not None
    assert wait.host == L40S_HOST
    plane.machine(L40S_HOST).answers = True
    plane.look(L40S_HOST)
    assert plane.services.operations.get(operation).state == "done"
    assert plane.services.vms.get("default", "train").state == "running"


def test_it_is_not_stopped_unless_that_is_asked_for_and_its_tenant_lets_it_be(plane: ControlPlane) -> None:
    def refused() -> str:
        with pytest.raises(Conflict) as error:
            plane.services.moving.plan(MoveVm(name="train", tenant="default", cold=True))
        return error.value.code

    for policy, may in (("wait", False), ("stop", True), ("00:00-23:59", True), ("23:59-00:00", False)):
        with plane.store.begin() as tx:
            tx.policies.put("default", TenantPolicy(maintenance=policy))
        if not may:
            assert refused() == "vm.not_now"
        assert plane.services.moving.plan(MoveVm(name="train", tenant="default", cold=True, force=not may))
    state = plane.services.vms.get("default", "train").state
    assert state == "running", "planned, and nothing else"


def test_whatever_its_guest_does_once_it_has_moved_what_it_left_is_cleared(plane: ControlPlane) -> None:
    """It has no way back any more: stuck for a guest that has ended, its place would be held for ever."""
    operation, vm = str(move_running(plane)), plane.services.vms.get("default", "train").id

    def ends(_number: int, moment: str, name: str) -> None:
        if (moment, name) == ("after", "StartDomain"):
            domains = plane.machine(OTHER).domains
            domains[vm] = (domains[vm][0], False)

    plane.hosts.strike = ends
    plane.engine.drain()
    ended = plane.services.operations.get(operation)
    assert (ended.state, ended.warnings) == ("done", ("the VM started and is shut off now",))
    source = plane.machine(L40S_HOST)
    assert [source.domains, source.volumes, source.seeds] == [{}, {}, {}]
    plane.look(OTHER)
    assert plane.services.vms.get("default", "train").state == "stopped"


def test_a_vm_that_is_deleted_when_its_move_got_stuck_holds_no_place_any_more(plane: ControlPlane) -> None:
    operation = str(move_running(plane))
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vgpu.gpu_gone", "the GPU is gone") if (moment, name) == ("before", "UndefineDomain") else None
    )
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "stuck"
    plane.hosts.strike = lambda *_: None
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert plane.services.operations.get(operation).state == "undone"
    with plane.store.read() as tx:
        assert [tx.vms.list(host=host) for host in (L40S_HOST, OTHER)] == [(), ()]
        assert tx.claims.list() == ()
