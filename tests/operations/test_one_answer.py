# SPDX-License-Identifier: Apache-2.0
"""An offering is given whole or refused, and whoever asks about it, in whatever way, hears the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.advice.explain import NO_PLACE
from orchestrator.core.errors import InvalidInput, NoCapacity, NotFound, QuotaExceeded
from orchestrator.core.gpu.vgpu_parameters import Scheduler
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.offerings.offering import Offering, unsupported
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.services.messages import HostChange
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with

T4 = "GRID T4-2Q"
BASE = Offering(name="asked", origin="site", kind="time_sliced", vgpu_type=T4)
UNSUPPORTED = (
    replace(BASE, kind="mig_backed", vgpu_type="GRID A100D-1-10C", scheduler=Scheduler(policy="fixed_share")),
    replace(BASE, kind="mig_backed", vgpu_type="GRID A100D-1-10C", mixed_sizes=True),
    replace(BASE, anti_affinity="gpu"),
)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def put(plane: ControlPlane, offering: Offering) -> None:
    with plane.store.begin() as tx:
        tx.offerings.put(offering)


@pytest.mark.parametrize("offering", UNSUPPORTED, ids=lambda offering: unsupported(offering)[0])
def test_what_is_not_done_is_refused_with_one_code_whoever_asks(plane: ControlPlane, offering: Offering) -> None:
    put(plane, offering)
    services, capacity, question = plane.services, plane.services.capacity, Question(profile="asked")
    asked: tuple[Callable[[], object], ...] = (
        lambda: services.vms.create(create_vm("a", profile="asked")),
        lambda: services.vms.plan(create_vm("a", profile="asked")),
        lambda: capacity.explain(question),
        lambda: capacity.explain_for_tenant(question),
        lambda: capacity.capacity(question),
        lambda: capacity.room(question, "default"),
    )
    refused = []
    for ask in asked:
        with pytest.raises(InvalidInput) as caught:
            ask()
        refused.append((caught.value.code, caught.value.message))
    assert refused == [("profile.unsupported", refused[0][1])] * len(asked)
    assert "asked" not in {row.profile for row in capacity.capacity(Question(each=True))}


def test_the_first_network_of_a_tenant_counts_whoever_asks(plane: ControlPlane) -> None:
    plane.services.tenancy.tenants.create("d")
    plane.services.tenancy.quotas.change("d", {"networks": 0})
    services, capacity, profile = plane.services, plane.services.capacity, "GRID T4-4Q"
    wanted, question = replace(create_vm("a", profile=profile), tenant="d"), Question(profile=profile, tenant="d")
    for ask in (lambda: services.vms.plan(wanted), lambda: services.vms.create(wanted)):
        with pytest.raises(QuotaExceeded, match="the quota of networks is 0, 0 in use, 1 asked for") as caught:
            ask()
        assert "delete a VM" not in str(caught.value.hint)
    assert capacity.explain(question).explanation.code == "quota.exceeded"
    assert capacity.explain_for_tenant(question).code == "quota.exceeded"
    row = capacity.room(question, "d")[0]
    assert (row.fits_now, row.reason and row.reason.code) == (0, "quota.exceeded")
    plane.services.tenancy.quotas.change("d", {"networks": 1})
    assert capacity.explain(question).explanation.fits
    assert capacity.room(question, "d")[0].fits_now
    services.vms.create(wanted)
    assert capacity.explain(question).explanation.fits, "the next VM brings no network along"


def test_a_gpu_whose_driver_mixes_no_sizes_is_refused_by_name(plane: ControlPlane) -> None:
    put(plane, replace(BASE, mixed_sizes=True))
    for ask in (
        lambda: plane.services.vms.create(create_vm("a", profile="asked")),
        lambda: plane.services.vms.plan(create_vm("a", profile="asked")),
    ):
        with pytest.raises(NoCapacity) as caught:
            ask()
        assert {reason.code for reason in caught.value.reasons} == {"gpu.no_mixed_sizes"}
    capacity, question = plane.services.capacity, Question(profile="asked")
    assert {one.code for one in capacity.explain(question).explanation.reasons} == {"gpu.no_mixed_sizes"}
    assert capacity.capacity(question)[0].fits_now == 0


def test_of_the_shipped_offerings_most_promise_only_what_is_done() -> None:
    shipped = shipped_profiles().offerings
    assert unsupported(shipped["t4-2q"]) == ()
    assert unsupported(shipped["l40s-12q-fixed"]) == ()
    assert unsupported(shipped["l40s-12q-mixed"]) == ()


def test_capacity_says_why_none_fits_as_explain_and_create_say_it(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    for number in range(99):
        try:
            plane.services.vms.create(create_vm(f"filling-{number}"))
        except NoCapacity as error:
            refused = {reason.message for reason in error.reasons}
            break
        plane.engine.drain()
    capacity = plane.services.capacity
    (alone,), rows = (
        capacity.capacity(Question(profile=T4)),
        {one.profile: one for one in capacity.capacity(Question(each=True))},
    )
    assert alone.reason is not None
    assert alone.reason.message in refused
    explained = capacity.explain(Question(profile=T4)).explanation
    assert alone.reason.code in {reason.code for reason in explained.reasons}
    assert alone.reason.code != "profile.unsupported", "that is said of the other host's GPUs"
    assert rows["t4-2q"].reason == alone.reason
    assert all((one.reason is None) == (one.fits_now > 0) for one in rows.values())
    (told,) = capacity.room(Question(profile=T4), "default")
    assert told.reason == NO_PLACE


def test_capacity_of_a_set_that_no_host_has_says_what_explain_says(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    question = Question(profile="t4-x8")
    (alone,) = plane.services.capacity.capacity(question)
    reasons = plane.services.capacity.explain(question).explanation.reasons
    assert alone.reason is not None
    assert (alone.reason.code, alone.reason.message) == ("vm.never_fits", reasons[0].message)


def test_capacity_names_the_quota_that_lets_a_tenant_create_none(plane: ControlPlane) -> None:
    plane.services.tenancy.quotas.change("default", {"vms": 0})
    (told,) = plane.services.capacity.room(Question(profile=T4), "default")
    assert told.reason is not None
    assert told.reason.message == "the quota of vms is 0, 0 in use, 1 asked for"
    assert (told.fits_now, told.reason.code) == (0, "quota.exceeded")


def test_what_lists_call_free_is_what_capacity_counts(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    put(plane, replace(BASE, name="apart", anti_affinity="host"))
    put(plane, replace(BASE, name="alone", cpu="pinned"))
    plane.services.vms.create(create_vm("a", profile="apart"))
    plane.engine.drain()
    listed = {info.offering.name: info for info in plane.services.profiles.list()}
    counted = {row.profile: row.fits_now for row in plane.services.capacity.capacity(Question(each=True))}
    assert len(counted) > 10
    assert {name: listed[name].free for name in counted} == counted
    assert (listed["apart"].free, listed["alone"].free) == (0, 0)


def test_an_offering_with_cpus_of_its_own_is_given_by_hosts_that_keep_some(plane: ControlPlane) -> None:
    put(plane, replace(BASE, name="alone", cpu="pinned"))
    profiles, capacity = plane.services.profiles, plane.services.capacity
    assert profiles.get("alone").hosts == ()
    with plane.store.begin() as tx:
        snapshot = tx.hosts.snapshot(T4_HOST)
        assert snapshot is not None
        node = NumaNode(id=0, cores=tuple((cpu,) for cpu in range(8)), memory_mib=snapshot.memory_mib)
        tx.hosts.put_snapshot(T4_HOST, replace(snapshot, nodes=(node,)), int(plane.world.clock.now()))
    plane.services.hosts.change(T4_HOST, HostChange(pinnable_cpus=(2, 3, 4, 5)))
    told = profiles.get("alone")
    assert told.hosts == (T4_HOST,)
    assert told.free == capacity.capacity(Question(profile="alone"))[0].fits_now > 0


def test_roles_that_cannot_be_run_are_told_by_whoever_is_asked(plane: ControlPlane) -> None:
    put(plane, replace(BASE, provision=("guest_driver",)))
    capacity, question = plane.services.capacity, Question(profile="asked")
    asked: tuple[Callable[[], object], ...] = (
        lambda: plane.services.vms.create(create_vm("a", profile="asked")),
        lambda: capacity.explain(question),
        lambda: capacity.capacity(question),
        lambda: capacity.room(question, "default"),
    )
    for ask in asked:
        with pytest.raises(NotFound) as caught:
            ask()
        assert caught.value.code == "bundle.missing"
    (row,) = (row for row in capacity.capacity(Question(each=True)) if row.profile == "asked")
    assert (row.fits_now, row.reason and row.reason.code) == (0, "bundle.missing")
    assert {room.profile: room.fits_now for room in capacity.room(Question(each=True), "default")}["asked"] == 0
    assert plane.services.profiles.get("asked").free == 0


def test_vms_of_an_offering_that_spreads_share_no_host(plane: ControlPlane) -> None:
    put(plane, replace(BASE, anti_affinity="host"))
    first = plane.services.vms.create(create_vm("a", profile="asked"))
    assert first.operation
    for ask in (
        lambda: plane.services.vms.create(create_vm("b", profile="asked")),
        lambda: plane.services.vms.plan(create_vm("b", profile="asked")),
    ):
        with pytest.raises(NoCapacity) as caught:
            ask()
        assert "host.anti_affinity" in {reason.code for reason in caught.value.reasons}
    assert not plane.services.capacity.explain(Question(profile="asked")).explanation.fits
    assert plane.services.vms.create(create_vm("c", profile=T4)).operation


def asked_of(plane: ControlPlane, host: str | None, gpu: str) -> list[tuple[str, str, str | None]]:
    """What create, plan and explain refuse a VM on that GPU with."""
    services, capacity = plane.services, plane.services.capacity
    vm = replace(create_vm("a"), host=host, gpu=gpu)
    asked: tuple[Callable[[], object], ...] = (
        lambda: services.vms.create(vm),
        lambda: services.vms.plan(vm),
        lambda: capacity.explain(Question(profile=T4, host=host, gpu=gpu)),
    )
    refused = []
    for ask in asked:
        with pytest.raises(NotFound) as caught:
            ask()
        refused.append((caught.value.code, caught.value.message, caught.value.hint))
    assert refused == [refused[0]] * len(asked)
    return refused


def test_a_vm_goes_onto_the_gpu_that_is_named_and_whoever_is_asked_says_so(plane: ControlPlane) -> None:
    services, wanted = plane.services, "0000:42:00.0"
    vm = replace(create_vm("a"), gpu="42:00.0")
    assert services.vms.plan(vm).gpus == (wanted,)
    explained = plane.services.capacity.explain(Question(profile=T4, gpu=wanted)).explanation
    assert explained.placement is not None
    assert explained.placement.gpu_ids == (wanted,)
    services.vms.create(vm)
    plane.engine.drain()
    made = services.vms.get("default", "a")
    assert (made.devices[0].gpu, made.spec.gpu) == (wanted, wanted)
    assert services.vms.create(vm).existing


def test_a_gpu_that_is_not_there_is_refused_with_what_was_probably_meant(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    ((code, message, hint), *_) = asked_of(plane, None, "0000:43:00.0")
    assert (code, message) == ("gpu.unknown", "no host has a GPU 0000:43:00.0")
    assert "did you mean" in str(hint)
    ((code, message, hint), *_) = asked_of(plane, T4_HOST, "0000:82:00.0")
    assert (code, message) == ("gpu.unknown", f"host {T4_HOST} has no GPU 0000:82:00.0")
    assert str(hint).startswith(f"host {L40S_HOST} has one; did you mean 0000:42:00.0")


def test_one_gpu_is_no_set_of_them_whoever_is_asked(plane: ControlPlane) -> None:
    services, question = plane.services, Question(profile="gpu:2", host=T4_HOST, gpu="0000:42:00.0")
    vm = replace(create_vm("a", profile="gpu:2"), host=T4_HOST, gpu="0000:42:00.0")
    asked: tuple[Callable[[], object], ...] = (
        lambda: services.vms.create(vm),
        lambda: services.vms.plan(vm),
        lambda: services.capacity.explain(question),
    )
    for ask in asked:
        with pytest.raises(InvalidInput) as caught:
            ask()
        assert (caught.value.code, caught.value.message) == (
            "gpu.one_named", "GPU 0000:42:00.0 is one, and gpu:2 takes 2 of a host",
        )  # fmt: skip


def test_what_is_no_address_is_refused_before_anything_is_asked(plane: ControlPlane) -> None:
    with pytest.raises(InvalidInput, match="is not a PCI address"):
        plane.services.vms.create(replace(create_vm("a"), gpu="the second one"))


def test_a_vm_that_gave_its_place_back_gets_it_on_the_same_gpu_again(plane: ControlPlane) -> None:
    services = plane.services
    services.vms.create(replace(create_vm("a"), gpu="0000:42:00.0", end=WantedEnd(after_s=600)))
    plane.engine.drain()
    plane.look(T4_HOST, after_s=700)
    assert services.vms.get("default", "a").deallocated == "lease_over"
    services.vms.create(create_vm("b"))
    plane.engine.drain()
    services.vms.extend("default", "a", WantedEnd(after_s=7200))
    services.vms.start("default", "a")
    plane.engine.drain()
    assert services.vms.get("default", "a").devices[0].gpu == "0000:42:00.0"
