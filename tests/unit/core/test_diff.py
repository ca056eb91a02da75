# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.diff import ExpectedHost, ExpectedVm, Finding, changes, compare, host_findings
from orchestrator.core.diff.finding import Repair
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot, DomainState, FileSnapshot, HostSnapshot
from orchestrator.core.hosts.volume_key import NO_KEY
from orchestrator.core.protocol import vm_not_back
from orchestrator.core.vms.vm import Vm, VmSpec, WantedState
from tests.fakes.fake_machine import FakeMachine, l40s, snapshot_of, t4

GPU, L40S = "0000:41:00.0", "0000:81:00.0"
KNOWN = [f"{number}0000000-0000-4000-8000-000000000000" for number in range(1, 5)]
GONE, STRANGE = KNOWN[2], KNOWN[3]
HOST = Host(
    name="h1", address="a", port=22, provisioning_user="root", host_key="k", state="ready", state_reason=None,
    cordoned=False, machine_id="m", epoch=1, managed_gpus=(GPU, L40S), last_seen_at=1.0,
)  # fmt: skip


def vm(vm_id: str) -> Vm:
    spec = VmSpec(
        name=f"v{vm_id[0]}", tenant="t", profile="p", image="i", vcpus=1, memory_mib=64, disk_bytes=1, network="n"
    )
    device = Device(kind="mdev", gpu=GPU, parent=GPU, type_name="GRID T4-2Q", name=vm_id.replace("0000-4", "0001-4"))
    return Vm(
        id=vm_id, spec=spec, state="running", host="h1", devices=(device,), addresses=(), operation="o", created_at=0.0
    )


owners = st.sampled_from([None, *KNOWN])
STATES: tuple[DomainState, ...] = ("running", "paused", "shut_off", "crashed", "other")
states = st.sampled_from(STATES)
uuids = st.sampled_from([vm(one).devices[0].name for one in KNOWN])


@st.composite
def snapshots(draw: st.DrawFn) -> HostSnapshot:
    machine = FakeMachine(machine_id="m", gpus=[t4(GPU), l40s(L40S)], managed=(GPU, L40S))
    machine.gpus[1].enabled = True
    for uuid in draw(st.sets(uuids)):
        machine.mdevs[uuid] = (GPU, "GRID T4-2Q", draw(owners))
    for function in draw(st.sets(st.sampled_from(machine.gpus[1].function_addresses()[:3]))):
        machine.vf_types[function] = ("NVIDIA L40S-12Q", draw(owners))
    domains = tuple(
        DomainSnapshot(
            uuid=one, name=draw(st.sampled_from([vm(one).domain_name, "other"])), state=draw(states),
            owner=draw(st.sampled_from([None, one])), devices=tuple(draw(st.lists(uuids, max_size=2, unique=True))),
        )
        for one in sorted(draw(st.sets(st.sampled_from(KNOWN))))
    )  # fmt: skip
    files = [
        tuple(FileSnapshot(name=f"{one}.{ending}", size_bytes=1, owner=draw(owners)) for one in sorted(names))
        for ending in ("qcow2", "iso")
        for names in [draw(st.sets(st.sampled_from(KNOWN)))]
    ]
    problems = tuple(draw(st.lists(st.just("libvirt did not answer"), max_size=1)))
    return replace(snapshot_of(machine), domains=domains, volumes=files[0], seeds=files[1], problems=problems)


@st.composite
def wants(draw: st.DrawFn) -> ExpectedHost:
    states: tuple[WantedState, ...] = ("running", "stopped")
    wanted = [replace(vm(one), wanted=draw(st.sampled_from(states))) for one in KNOWN[:2]]
    known = [ExpectedVm(vm=one, claimed=draw(st.booleans())) for one in wanted]
    return ExpectedHost(
        host=HOST,
        vms=tuple(known[: draw(st.integers(0, 2))]),
        busy=frozenset(draw(st.sets(st.sampled_from(KNOWN[:2])))),
        gone=frozenset({GONE}),
    )


CASES = settings(max_examples=100)


def removed_by(findings: Sequence[Finding]) -> list[str]:
    return [action.vm for one in findings if one.repair for action in one.repair.actions if hasattr(action, "vm")]


@CASES
@given(wanted=wants(), snapshot=snapshots())
def test_nothing_is_removed_but_what_is_ours_and_that_no_running_domain_has(
    wanted: ExpectedHost, snapshot: HostSnapshot
) -> None:
    found = compare(wanted, snapshot)
    active = {one.uuid for one in snapshot.domains if one.state not in {"shut_off", "crashed"}}
    allowed = wanted.gone | {one.vm.id for one in wanted.vms if not one.running}
    assert set(removed_by(found)) <= allowed - active
    assert all(one.whose == "ours" for one in found if one.repair)
    held = {name for one in snapshot.domains if one.uuid in active for name in one.devices}
    removed = {str(getattr(action, "uuid", "")) for one in found if one.repair for action in one.repair.actions}
    assert not removed & held


@pytest.mark.fault("F103")
@CASES
@given(wanted=wants(), snapshot=snapshots())
def test_nothing_is_said_of_what_an_operation_works_on(wanted: ExpectedHost, snapshot: HostSnapshot) -> None:
    assert {one.vm for one in compare(wanted, snapshot)} & wanted.busy == set()


@CASES
@given(wanted=wants(), snapshot=snapshots())
def test_a_comparison_gives_the_same_again_and_every_finding_has_a_name_of_its_own(
    wanted: ExpectedHost, snapshot: HostSnapshot
) -> None:
    found = compare(wanted, snapshot)
    assert compare(wanted, snapshot) == found
    assert len({one.key for one in found}) == len(found)
    assert all(one.reason and len(one.code) <= 40 and len(one.subject) <= 160 for one in found)


@CASES
@given(wanted=wants(), snapshot=snapshots())
def test_a_vm_gets_one_kind_of_change_and_removals_come_first(wanted: ExpectedHost, snapshot: HostSnapshot) -> None:
    chosen = changes(compare(wanted, snapshot), automatic_only=False)
    kinds: dict[str | None, set[str]] = {}
    for one in chosen:
        assert one.repair is not None
        kinds.setdefault(one.vm, set()).add(one.repair.kind)
    assert all(len(kind) == 1 for kind in kinds.values())
    order = ["settle_ledger", "mend_host", "clean_up", "stop_vm", "start_vm"]
    positions = [order.index(one.repair.kind) for one in chosen if one.repair]
    assert positions == sorted(positions)
    assert all(one.repair and one.repair.automatic for one in changes(chosen, automatic_only=True))


def test_half_a_look_proves_nothing_missing() -> None:
    machine = FakeMachine(machine_id="m", gpus=[t4(GPU)])
    half = replace(snapshot_of(machine), problems=("libvirt did not answer",))
    one = ExpectedVm(vm=vm(KNOWN[0]), claimed=True)
    wanted = ExpectedHost(host=HOST, vms=(one,), busy=frozenset(), gone=frozenset())
    assert [one.code for one in compare(wanted, half)] == ["host.half_seen"]


def test_a_vm_that_did_not_come_back_with_its_host_says_what_its_agent_said() -> None:
    machine = FakeMachine(machine_id="m", gpus=[t4(GPU)])
    one = vm(KNOWN[0])
    domain = DomainSnapshot(
        uuid=one.id, name=one.domain_name, state="shut_off", owner=one.id, devices=(one.devices[0].name,)
    )
    problems = (vm_not_back(KNOWN[1], "no KVM"), vm_not_back(one.id, f"GPU {GPU} is not on the host's bus"))
    disk = (FileSnapshot(name=one.volume, size_bytes=1, owner=one.id),)
    seen = replace(snapshot_of(machine), domains=(domain,), problems=problems, volumes=disk)
    wanted = ExpectedHost(host=HOST, vms=(ExpectedVm(vm=one, claimed=True),), busy=frozenset(), gone=frozenset())
    found = {each.code: each for each in compare(wanted, seen)}["vm.not_running"]
    assert found.observed == f"shut off since the host booted: GPU {GPU} is not on the host's bus"
    assert found.repair is not None
    for other in (replace(seen, volumes=()), replace(seen, problems=(), restoring=True)):
        found = {each.code: each for each in compare(wanted, other)}["vm.not_running"]
        assert found.repair is None, "it would be in vain, or comes by itself"
    assert (found.severity, found.observed) == ("info", "shut off, not yet restored")
    waiting = replace(seen, problems=(vm_not_back(one.id, f"{NO_KEY} (an id)"),))
    for other, automatic in ((seen, False), (waiting, True)):
        found = {each.code: each for each in compare(wanted, other)}["vm.not_running"]
        assert found.repair == Repair(kind="start_vm", automatic=automatic), "no host starts it by itself"


def test_a_vm_that_does_not_run_says_which_of_its_gpus_is_gone_whatever_else_its_agent_said() -> None:
    machine = FakeMachine(machine_id="m", gpus=[t4(GPU)])
    one = vm(KNOWN[0])
    domain = DomainSnapshot(
        uuid=one.id, name=one.domain_name, state="shut_off", owner=one.id, devices=(one.devices[0].name,)
    )
    wanted = ExpectedHost(host=HOST, vms=(ExpectedVm(vm=one, claimed=True),), busy=frozenset(), gone=frozenset())
    for problems, since in (((), ""), ((vm_not_back(one.id, "no function"),), " since the host booted")):
        disk = (FileSnapshot(name=one.volume, size_bytes=1, owner=one.id),)
        seen = replace(snapshot_of(machine), domains=(domain,), gpus=(), problems=problems, volumes=disk)
        found = {each.code: each for each in compare(wanted, seen)}["vm.not_running"]
        assert found.observed == f"shut off{since}: GPU {GPU} is not on the host's bus"


def test_a_host_that_cannot_be_worked_on_is_a_finding_of_its_own() -> None:
    for state in ("unreachable", "quarantined", "failed"):
        assert [one.code for one in host_findings(replace(HOST, state=state))] == [f"host.{state}"]
    assert host_findings(HOST) == ()
