# SPDX-License-Identifier: Apache-2.0
"""Between two VMs a piece of a GPU is known to be clean, or nothing is put on its GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import Fatal, NoCapacity, NotFound
from orchestrator.core.vms.cleaning import Cleaning
from orchestrator.operations.cleanings import settle_cleanings
from orchestrator.services.fleet.view import SANITISING
from orchestrator.store.records import ClaimLost
from tests.fakes import cleaned
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import no_fault
from tests.operations import moves, resizes


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        made.services.vms.create(create_vm())
        made.engine.drain()
        yield made


def cleanings(plane: ControlPlane) -> tuple[Cleaning, ...]:
    return plane.services.gpus.cleanings(limit=10, before=None, sanitising=False)


def untold(_: HostAction, changed: bool, message: str) -> ActionResult:
    """An agent's of before."""
    return ActionResult(changed=changed, message=message)


def abandoned_with_its_vgpu_left(plane: ControlPlane) -> Cleaning:
    """A delete whose host does not obey, and a person who says that nothing is left."""
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vgpu.stubborn", "it did not obey") if (moment, name) == ("before", "RemoveMdev") else None
    )
    operation = str(plane.services.vms.delete("default", "train").operation)
    plane.engine.drain()
    plane.hosts.strike = no_fault
    plane.services.operations.abandon(operation)
    (cleaning,) = cleanings(plane)
    return cleaning


def test_a_claim_that_ends_leaves_how_its_piece_was_cleaned(plane: ControlPlane) -> None:
    (before,) = plane.services.vms.get("default", "train").devices
    operation = plane.services.vms.delete("default", "train").operation
    plane.engine.drain()
    (cleaning,) = cleanings(plane)
    assert (cleaning.host, cleaning.gpu, cleaning.device) == (T4_HOST, before.gpu, before.name)
    assert (cleaning.tenant, cleaning.vm_name, cleaning.operation) == ("default", "train", operation)
    assert (cleaning.method, cleaning.cleaned_at, cleaning.health) == ("vgpu_destroyed", cleaning.ended_at, "healthy")
    assert cleaning.gpu_uuid
    assert cleaning.slots


def test_a_stop_ends_no_claim(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    assert cleanings(plane) == ()


def test_how_a_stop_has_cleaned_is_the_evidence_of_the_claims_end(plane: ControlPlane) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert [cleaning.method for cleaning in cleanings(plane)] == ["vgpu_destroyed"]


@pytest.mark.parametrize("again", ["start", "crashed start"])
def test_what_a_stop_has_cleaned_is_no_evidence_once_the_vm_has_its_device_again(
    plane: ControlPlane, again: str
) -> None:
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    plane.services.vms.start("default", "train")
    plane.engine.drain()
    machine = plane.machine(T4_HOST)
    machine.mdevs.clear()  # as a boot leaves it: nobody has seen how
    if again == "crashed start":
        machine.domains.clear()
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert [cleaning.method for cleaning in cleanings(plane)] == ["absent"]


def test_a_claim_that_moves_takes_along_how_its_last_stop_has_cleaned(tmp_path: Path) -> None:
    with plane_with(tmp_path) as plane:
        moves.hosts(plane)
        plane.services.vms.create(replace(create_vm(profile="gpu:1"), host=L40S_HOST))
        plane.engine.drain()
        plane.services.vms.stop("default", "train")
        plane.engine.drain()
        moves.move(plane)
        plane.engine.drain()
        plane.services.vms.delete("default", "train")
        plane.engine.drain()
        ends = [(cleaning.host, cleaning.method) for cleaning in cleanings(plane)]
        assert ends == [(moves.OTHER, "absent"), (L40S_HOST, "vgpu_destroyed")]


def test_nothing_is_put_on_a_gpu_until_it_is_seen_without_what_was_left(plane: ControlPlane) -> None:
    left = abandoned_with_its_vgpu_left(plane)
    assert (left.method, left.cleaned_at) == (None, None)
    there = replace(create_vm("next"), host=T4_HOST, gpu=left.gpu)
    for _ in range(2):
        with pytest.raises(NoCapacity) as refused:
            plane.services.vms.create(there)
        assert SANITISING in str(refused.value.reasons)
        gpu = plane.services.gpus.get(T4_HOST, left.gpu)
        assert SANITISING in gpu.gpu.problems
        assert not any(use.free for use in gpu.types)
        with plane.store.begin() as tx, pytest.raises(ClaimLost):
            tx.cleanings.check(T4_HOST, [left.gpu])
        plane.observer.observe(T4_HOST)  # which shows the vGPU
    plane.machine(T4_HOST).mdevs.clear()
    plane.observer.observe(T4_HOST)
    (settled,) = cleanings(plane)
    assert settled.method == "seen_gone"
    assert settled.cleaned_at is not None
    plane.services.vms.create(there)
    plane.engine.drain()
    assert plane.services.vms.get("default", "next").state == "running"


def test_what_an_agent_cannot_say_is_not_known_of_an_operation_that_is_taken_back_either(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest may have run, so that nothing was made is not true."""
    monkeypatch.setattr(cleaned, "result_of", untold)
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("libvirt.refused", "no") if (moment, name) == ("after", "StartDomain") else None
    )
    plane.services.vms.create(create_vm("next"))
    plane.engine.drain()
    plane.hosts.strike = no_fault
    assert "RemoveMdev" in plane.hosts.effects
    (cleaning,) = cleanings(plane)
    assert (cleaning.vm_name, cleaning.method) == ("next", None)
    plane.observer.observe(T4_HOST)
    assert [cleaning.method for cleaning in cleanings(plane)] == ["seen_gone"]


def test_a_vm_that_runs_on_where_it_had_more_keeps_its_gpu_from_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaned, "result_of", untold)
    with plane_with(tmp_path) as plane:
        resizes.of_host(L40S_HOST)(plane)
        for back in (False, True):
            resizes.resize(L40S_HOST, back=back)(plane)
            plane.engine.drain()
            plane.observer.observe(L40S_HOST)
        assert plane.services.vms.get("default", "train").state == "running"
        assert {cleaning.method for cleaning in cleanings(plane)} == {"seen_gone"}


def test_a_more_important_vm_gets_the_place_that_was_freed_for_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaned, "result_of", untold)
    with plane_with(tmp_path, T4_HOST) as plane:
        plane.services.tenancy.policies.change("default", {"max_priority": "high", "preempt": True})
        for gpu in plane.machine(T4_HOST).gpus:
            low = replace(create_vm(f"on-{gpu.address[5:7]}", profile="GRID T4-16Q"), priority="low")
            plane.services.vms.create(low)
            plane.engine.drain()
        high = replace(create_vm("next", profile="GRID T4-16Q"), priority="high", preempt=True)
        plane.services.vms.create(high)
        plane.engine.drain()
        assert [cleaning.method for cleaning in cleanings(plane)] == ["seen_gone"]
        assert plane.services.vms.get("default", "next").state == "running"


def test_an_observation_from_before_the_claim_ended_says_nothing_whatever_clocks_say(plane: ControlPlane) -> None:
    with plane.store.read() as tx:
        before = tx.operations.turn()
    left = abandoned_with_its_vgpu_left(plane)
    plane.machine(T4_HOST).mdevs.clear()
    host = plane.services.hosts.get(T4_HOST).host
    with plane.store.begin() as tx:
        settle_cleanings(tx, T4_HOST, plane.hosts.observe(host), turn=before, now=left.ended_at + 3600)
    assert cleanings(plane) == (left,)
    with plane.store.begin() as tx:
        after = tx.operations.turn()
        settle_cleanings(tx, T4_HOST, plane.hosts.observe(host), turn=after, now=left.ended_at - 3600)
    assert [cleaning.method for cleaning in cleanings(plane)] == ["seen_gone"]


def test_a_host_that_looks_as_before_is_observed_as_long_as_one_of_its_gpus_is_sanitising(plane: ControlPlane) -> None:
    def is_observed() -> bool:
        with plane.store.read() as tx:
            return T4_HOST in tx.observations.changed_since(since=tx.operations.turn(), now=0.0)

    plane.observer.observe(T4_HOST)
    assert not is_observed()
    abandoned_with_its_vgpu_left(plane)
    assert is_observed()


def test_what_was_on_a_host_that_is_given_up_is_open_no_longer(plane: ControlPlane) -> None:
    abandoned_with_its_vgpu_left(plane)
    plane.services.vms.create(create_vm("next"))
    plane.engine.drain()
    plane.machine(T4_HOST).answers = False
    plane.observer.observe(T4_HOST)
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)
    assert [cleaning.method for cleaning in cleanings(plane)] == ["host_given_up"] * 2
    assert plane.services.gpus.cleanings(limit=10, before=None, sanitising=True) == ()


def test_what_is_not_known_to_be_clean_goes_with_its_card(plane: ControlPlane) -> None:
    left = abandoned_with_its_vgpu_left(plane)
    with plane.store.begin() as tx:
        tx.cards.put(T4_HOST, (), {left.gpu: "0000:a1:00.0"})
    assert [cleaning.gpu for cleaning in cleanings(plane)] == ["0000:a1:00.0"]


@pytest.mark.parametrize(
    ("member", "code"),
    [("host", "host.unknown"), ("gpu", "gpu.unknown"), ("vm_name", "vm.unknown"), ("tenant", "tenant.unknown")],
)
def test_cleanings_of_what_never_was_are_not_found_and_of_what_is_gone_are_listed(
    plane: ControlPlane, member: str, code: str
) -> None:
    def of(name: str) -> tuple[Cleaning, ...]:
        return plane.services.gpus.cleanings(limit=10, before=None, sanitising=False, **{member: name})

    gpu = plane.services.vms.get("default", "train").devices[0].gpu
    there = {"host": T4_HOST, "gpu": gpu, "vm_name": "train", "tenant": "default"}[member]
    with pytest.raises(NotFound) as unknown:
        of("0000:ff:00.0" if member == "gpu" else "nowhere")
    assert (unknown.value.code, bool(unknown.value.hint)) == (code, True)
    assert of(there) == ()
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert len(of(there)) == 1
