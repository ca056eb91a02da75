# SPDX-License-Identifier: Apache-2.0
"""Pools that several hosts mount: declared once, counted once, and a VM in one moves without its disk being copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.api.visibility import refusal_for_tenant
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity, NotFound, VgpuctlError
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.labels import KEPT_FOR
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import shared_files
from orchestrator.services.messages import HostChange, MoveVm
from orchestrator.services.vms.capacity import Question
from orchestrator.sim.pools import SimulatedPool
from tests.fakes.control_plane import GIB, L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.recount import miscounted
from tests.operations import moves, pools, volumes
from tests.operations.moves import MIGRATABLE, OTHER
from tests.operations.pools import SIZE
from tests.operations.test_moving import run


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    pools.with_running_vm(made)
    yield made
    made.store.close()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    pools.mounted(made)
    yield made
    made.store.close()


def refused(code: str, kind: type[VgpuctlError], call: Callable[[], object]) -> VgpuctlError:
    with pytest.raises(kind) as error:
        call()
    assert error.value.code == code
    return error.value


def train(plane: ControlPlane) -> Vm:
    return plane.services.vms.get("default", "train")


@pytest.fixture
def two_pools(tmp_path: Path) -> Iterator[ControlPlane]:
    made = control_plane(tmp_path)
    pools.with_slow_pool_too(made)
    yield made
    made.store.close()


def claimed(plane: ControlPlane, name: str) -> int:
    return plane.services.pools.get(name).pool.claimed_bytes


def test_a_copy_of_a_volume_goes_to_another_pool_by_a_host_that_has_both(two_pools: ControlPlane) -> None:
    plane = two_pools
    before = claimed(plane, "fast")
    operation = volumes.copy(plane, pool="slow")
    assert run(plane, operation) == "done"
    twin = plane.services.volumes.get("default", "twin").volume
    assert (twin.host, str(twin.pool).partition(".")[0], twin.state) == (None, "slow", "ready")
    assert twin.file in plane.machine(OTHER).pools["slow"].files
    assert (claimed(plane, "fast"), claimed(plane, "slow")) == (before, SIZE)
    pools.mount(plane, "far", (L40S_HOST,))
    assert run(plane, plane.services.pools.create("far").operation) == "done"
    assert run(plane, volumes.snapshot(plane, "again")) == "done"
    del plane.machine(L40S_HOST).pools["fast"]
    plane.observer.observe(L40S_HOST)
    refused("pool.not_reached", NoCapacity, partial(volumes.copy, plane, "third", pool="far"))
    refused("pool.unknown", NotFound, partial(volumes.copy, plane, "third", pool="near"))


def test_a_copy_of_a_volume_leaves_its_pool_for_a_hosts_own_disk_and_comes_back(two_pools: ControlPlane) -> None:
    plane = two_pools
    assert run(plane, volumes.copy(plane, pool="none")) == "done"
    twin = plane.services.volumes.get("default", "twin").volume
    assert (twin.host, twin.pool) == (L40S_HOST, None)
    snapshots = plane.services.volume_snapshots
    assert run(plane, snapshots.create("default", "twin", "now").operation) == "done"
    back = partial(snapshots.copy, "default", ("twin", "now"), "back", None, DiskLimits())
    refused("pool.not_reached", NoCapacity, partial(back, "slow"))
    assert run(plane, back("fast").operation) == "done"
    again = plane.services.volumes.get("default", "back").volume
    assert (again.host, str(again.pool).partition(".")[0]) == (None, "fast")
    with plane.store.read() as tx:
        assert not list(miscounted(tx))


def test_a_copy_leaves_its_pool_for_no_host_that_is_kept_for_another_tenant(two_pools: ControlPlane) -> None:
    plane = two_pools
    plane.services.tenancy.tenants.create("vision")
    for kept in (L40S_HOST, OTHER):
        plane.services.hosts.change(kept, HostChange(labels={KEPT_FOR: "vision"}))
        plane.observer.observe(kept)
        if kept == L40S_HOST:
            assert run(plane, volumes.copy(plane, pool="none")) == "done"
            assert plane.services.volumes.get("default", "twin").volume.host == OTHER
    refused("host.kept", NoCapacity, partial(volumes.copy, plane, "third", pool="none"))
    assert run(plane, volumes.copy(plane, "third")) == "done", "in its pool it lies on no host"


def test_a_pool_is_declared_on_one_host_and_known_to_all_that_mount_it(bare: ControlPlane) -> None:
    service = bare.services.pools
    assert run(bare, service.create("fast").operation) == "done"
    bare.observer.observe(OTHER)
    info = service.get("fast")
    assert (info.pool.state, info.hosts) == ("ready", (L40S_HOST, OTHER))
    assert (info.pool.capacity_bytes, info.pool.claimed_bytes) == (1024 * GIB, 0), "once, not for each host"
    bare.hosts.effects.clear()
    refused("pool.exists", Conflict, lambda: service.create("fast", host=OTHER))
    assert bare.hosts.effects == [], "no host is asked for it"
    refused("pool.unknown", NotFound, lambda: service.get("slow"))
    refused("pool.not_reached", NoCapacity, lambda: service.create("slow"))
    for name in ("a-name-that-is-too-long", "none"):
        refused("pool.name_invalid", InvalidInput, partial(service.create, name))
    assert run(bare, service.delete("fast").operation) == "done"
    assert service.list() == ()
    assert bare.machine(OTHER).pools["fast"].pool_id is None


def test_a_host_that_has_not_mounted_it_declares_no_pool(bare: ControlPlane) -> None:
    error = refused("pool.not_reached", NoCapacity, lambda: bare.services.pools.create("slow", host=OTHER))
    assert f"host {OTHER} is not ready, or has not mounted pool slow" in error.message
    assert bare.services.pools.list() == ()
    bare.observer.observe(OTHER)
    assert run(bare, bare.services.pools.create("fast", host=OTHER).operation) == "done"
    for host in (L40S_HOST, OTHER):
        bare.machine(host).pools.clear()
        bare.observer.observe(host)
    for call, may_name_one in ((bare.services.pools.create, True), (bare.services.pools.delete, False)):
        error = refused("pool.not_reached", NoCapacity, partial(call, "slow" if may_name_one else "fast"))
        assert ("--host" in str(error.hint)) == may_name_one


def test_hosts_are_observed_for_a_pool_that_was_mounted_just_now(bare: ControlPlane) -> None:
    for name, host in (("late", None), ("later", OTHER)):
        for mounting in (L40S_HOST, OTHER):
            bare.machine(mounting).pools[name] = SimulatedPool(name)
        assert run(bare, bare.services.pools.create(name, host=host).operation) == "done"


def test_another_directory_of_that_name_is_not_the_pool(plane: ControlPlane) -> None:
    plane.machine(OTHER).pools["fast"] = replace(plane.machine(OTHER).pools["fast"], pool_id=plane.ids.new_uuid())
    plane.observer.observe(OTHER)
    assert plane.services.pools.get("fast").hosts == (L40S_HOST,)
    error = refused("gpu.no_capacity", NoCapacity, lambda: moves.move(plane))
    assert "host.no_pool" in {reason.code for reason in error.reasons}


def test_a_vm_and_its_volume_are_in_the_pool_and_counted_there_and_not_on_the_host(plane: ControlPlane) -> None:
    machine, vm = plane.machine(L40S_HOST), train(plane)
    pool = machine.pools["fast"]
    assert set(pool.files) == set(shared_files(vm)), "the disk and the data volume"
    assert set(pool.leases.values()) == {machine.machine_id}
    with plane.store.read() as tx:
        claim, known = tx.claims.find(vm.id), tx.pools.get("fast")
    assert claim is not None
    assert (claim.disk_bytes, known.claimed_bytes) == (0, vm.spec.disk_bytes + SIZE)
    refused("pool.in_use", Conflict, lambda: plane.services.pools.delete("fast"))
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    with plane.store.read() as tx:
        assert tx.pools.get("fast").claimed_bytes == SIZE
    assert set(pool.files) == {plane.services.volumes.get("default", "data").volume.file}
    assert pool.leases == {}


@pytest.mark.parametrize("way", ["live", "cold", "stopped"])
def test_it_moves_without_a_copy_and_the_other_host_alone_may_open_its_disk(
    plane: ControlPlane, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "stopped":
        plane.services.vms.stop("default", "train")
        plane.engine.drain()
    request = MoveVm(name="train", tenant="default", cold=way == "cold")
    assert plane.services.moving.plan(request).disk_bytes == 0
    monkeypatch.setattr(plane.hosts, "copy_volume", lambda *_: pytest.fail("its disk is copied"))
    operation = plane.services.moving.move(request).operation
    assert run(plane, operation) == "done"
    source, target, vm = plane.machine(L40S_HOST), plane.machine(OTHER), train(plane)
    assert (vm.host, vm.state) == (OTHER, "stopped" if way == "stopped" else "running")
    pool = target.pools["fast"]
    assert set(pool.files) == set(shared_files(vm)), "all of it is there yet"
    assert {pool.leases[file] for file in pool.files} == {target.machine_id}
    assert (source.volumes, source.data, source.domains) == ({}, {}, {})
    assert run(plane, plane.services.moving.move(replace(request, host=L40S_HOST)).operation) == "done"
    assert train(plane).host == L40S_HOST


def test_a_full_pool_is_refused_by_name_before_anything_is_stored(bare: ControlPlane) -> None:
    pool = bare.machine(L40S_HOST).pools["fast"]
    pool.capacity_bytes = 30 * GIB
    run(bare, bare.services.pools.create("fast").operation)
    bare.services.volumes.create("default", "data", SIZE, pool="fast")
    error = refused("pool.full", NoCapacity, lambda: bare.services.volumes.create("default", "more", SIZE, pool="fast"))
    assert "fast" in error.message
    missing = refused("pool.unknown", NotFound, lambda: bare.services.volumes.create("default", "m", SIZE, pool="fas"))
    wanted = replace(create_vm(profile="NVIDIA L40S-12Q"), pool="fast", disk_bytes=SIZE)
    refused("pool.full", NoCapacity, lambda: bare.services.vms.create(wanted))
    assert bare.services.vms.list(None) == ()
    for full in (refusal_for_tenant(error), refusal_for_tenant(missing)):
        assert "GiB" not in full.message.replace("20GiB", ""), "what others hold there"
        assert "fast" not in (full.hint or "")
    bare.services.volumes.delete("default", "data")
    assert bare.services.vms.create(wanted).operation is not None


def test_an_offering_whose_pool_is_full_counts_none_and_keeps_nothing_from_others(bare: ControlPlane) -> None:
    bare.machine(L40S_HOST).pools["fast"].capacity_bytes = 30 * GIB
    run(bare, bare.services.pools.create("fast").operation)
    services, plain = bare.services, "l40s-12q-equal"
    services.offerings.put(replace(MIGRATABLE, name="pooled", pool="fast", disk="20GiB"), look_up=False)
    assert services.capacity.count([plain, "pooled"]) == {plain: 12, "pooled": 8}
    services.volumes.create("default", "data", SIZE, pool="fast")
    rows = {row.profile: row for row in services.capacity.capacity(Question(each=True))}
    assert (rows[plain].fits_now, rows["pooled"].fits_now) == (12, 0)
    assert rows["pooled"].reason is not None
    assert "pool fast has 10GiB left, not 20GiB" in rows["pooled"].reason.message
    (mine,) = [row for row in services.capacity.room(Question(each=True), "default") if row.profile == "pooled"]
    assert mine.reason is not None
    assert (mine.fits_now, mine.reason.code, "10GiB" in mine.reason.message) == (0, "pool.full", False)
    free = {info.offering.name: info.free for info in services.profiles.list()}
    assert (free[plain], free["pooled"]) == (12, 0)
    assert services.capacity.count([plain, "pooled"]) == {plain: 12, "pooled": 0}
    assert services.capacity.gains({}) == ()
    refused("pool.full", NoCapacity, lambda: services.capacity.capacity(Question(profile="pooled", disk_bytes=SIZE)))
    refused("pool.full", NoCapacity, lambda: services.capacity.explain(Question(profile="pooled", disk_bytes=SIZE)))


def test_what_nobody_claims_in_a_pool_is_not_promised_again(bare: ControlPlane) -> None:
    pool = bare.machine(L40S_HOST).pools["fast"]
    run(bare, bare.services.pools.create("fast").operation)
    pool.files[f"left.{pool.pool_id}.raw"] = pool.capacity_bytes - SIZE // 2
    for host in (L40S_HOST, OTHER):
        bare.observer.observe(host)
    refused("pool.full", NoCapacity, lambda: bare.services.volumes.create("default", "data", SIZE, pool="fast"))


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_volume_that_a_host_may_open_is_not_deleted_elsewhere_but_of_one_that_is_given_up(
    plane: ControlPlane, gives_up: bool
) -> None:
    machine = plane.machine(L40S_HOST)
    file = next(file for file in shared_files(train(plane)) if file.endswith(".raw"))
    run(plane, plane.services.vms.delete("default", "train").operation)
    machine.pools["fast"].leases[file] = machine.machine_id
    machine.answers = False
    plane.observer.observe(L40S_HOST)
    if gives_up:
        plane.services.hosts.forget(L40S_HOST, confirm=L40S_HOST)
    deleted = plane.services.volumes.delete("default", "data").operation
    assert run(plane, deleted) == ("done" if gives_up else "undone")
    assert (file in plane.machine(OTHER).pools["fast"].files) is not gives_up


def test_what_names_no_pool_lies_where_its_tenants_policy_says(plane: ControlPlane) -> None:
    policies, volumes = plane.services.tenancy.policies, plane.services.volumes
    refused("pool.unknown", NotFound, lambda: policies.change("default", {"pool": "slow"}))
    policies.change("default", {"pool": "fast"})
    volume = volumes.create("default", "usual", SIZE).volume
    assert volume.pool == train(plane).spec.pool
    assert volumes.create("default", "usual", SIZE, pool="fast").volume == volume
    on_host = volumes.create("default", "own", SIZE, host=L40S_HOST).volume
    assert (on_host.pool, on_host.host) == (None, L40S_HOST)
    assert volumes.create("default", "own", SIZE, host=L40S_HOST, pool="none").volume == on_host
    both = partial(volumes.create, "default", "own", SIZE, host=L40S_HOST, pool="fast")
    refused("volume.host_and_pool", InvalidInput, both)
    wanted = replace(create_vm("usual", profile=MIGRATABLE.name), host=L40S_HOST)
    run(plane, plane.services.vms.create(wanted).operation)
    assert plane.services.vms.get("default", "usual").spec.pool == volume.pool
    policies.change("default", {"pool": None})
    assert plane.services.vms.create(wanted).existing, "asked for as before it is the same"
    policies.change("default", {"pool": "fast"})
    for name in ("usual", "train"):
        run(plane, plane.services.vms.delete("default", name).operation)
    volumes.delete("default", "usual")  # no host has a file of it
    run(plane, volumes.delete("default", "data").operation)
    error = refused("pool.in_use", Conflict, lambda: plane.services.pools.delete("fast"))
    assert "policy set default pool=none" in (error.hint or "")
    policies.change("default", {"pool": None})
    plane.services.pools.delete("fast")
    refused("pool.busy", Conflict, lambda: policies.change("default", {"pool": "fast"}))


def test_a_host_without_the_pool_gets_none_of_its_vms_and_volumes(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    wanted = replace(create_vm("other"), pool="fast")
    error = refused("gpu.no_capacity", NoCapacity, lambda: plane.services.vms.create(wanted))
    assert "host.no_pool" in {reason.code for reason in error.reasons}
    plane.services.vms.create(create_vm("plain", start=False))
    plane.services.volumes.create("default", "more", SIZE, pool="fast")
    plane.engine.drain()
    refused("volume.elsewhere", Conflict, lambda: plane.services.volumes.attach("default", "more", "plain"))


def test_where_the_mount_is_gone_it_is_told_and_no_disk_is_said_to_be_lost(plane: ControlPlane) -> None:
    machine = plane.machine(L40S_HOST)
    pool = machine.pools.pop("fast")
    codes = {finding.finding.code for finding in plane.findings.observe(L40S_HOST)}
    assert "vm.pool_away" in codes
    assert "vm.volume_missing" not in codes
    machine.pools["fast"] = pool
    assert "vm.pool_away" not in {finding.finding.code for finding in plane.findings.observe(L40S_HOST)}


def test_an_offering_says_it_before_the_policy_and_a_request_before_both(plane: ControlPlane) -> None:
    services, in_pool = plane.services, train(plane).spec.pool
    offering = replace(MIGRATABLE, name="pooled", pool="fast")
    refused("pool.unknown", NotFound, lambda: services.offerings.put(replace(offering, pool="slow"), look_up=False))
    services.offerings.put(offering, look_up=False)
    other = replace(create_vm("own", profile="pooled", start=False), pool="none")
    for wanted, pool in ((create_vm("pooled", profile="pooled", start=False), in_pool), (other, None)):
        question = Question(profile="pooled", pool=wanted.pool, disk_bytes=2048 * GIB)
        code = "" if pool is None else "pool.full"
        assert code == "" or refused(code, NoCapacity, partial(services.capacity.explain, question))
        run(plane, services.vms.create(wanted).operation)
        vm = services.vms.get("default", wanted.name)
        with plane.store.read() as tx:
            claim = tx.claims.find(vm.id)
        assert claim is not None
        assert (vm.spec.pool, claim.disk_bytes) == (pool, 0 if pool else vm.spec.disk_bytes)
        assert services.vms.create(wanted).existing
    refused("vm.exists", Conflict, lambda: services.vms.create(replace(other, pool="fast")))
    refused("vm.exists", Conflict, lambda: services.vms.create(replace(other, name="pooled")))
    services.tenancy.policies.change("default", {"pool": "fast"})
    assert services.volumes.create("default", "bare", SIZE, pool="none").volume.pool is None
    refused("volume.exists", Conflict, lambda: services.volumes.create("default", "bare", SIZE, pool="fast"))
    refused("volume.exists", Conflict, lambda: services.volumes.create("default", "data", SIZE, pool="none"))
    services.tenancy.policies.change("default", {"pool": None})
    for name in ("train", "pooled"):
        run(plane, services.vms.delete("default", name).operation)
    run(plane, services.volumes.delete("default", "data").operation)
    error = refused("pool.in_use", Conflict, lambda: services.pools.delete("fast"))
    assert "offerings name pool fast: pooled" in error.message
    refused("offering.in_use", Conflict, lambda: services.offerings.remove("pooled"))  # "own" has it
    services.offerings.put(replace(offering, pool=None), look_up=False)


def test_the_same_request_again_is_the_same_vm(plane: ControlPlane) -> None:
    vm = train(plane)
    wanted = replace(create_vm(profile=moves.MIGRATABLE.name), host=L40S_HOST, pool="fast", volumes=("data",))
    assert plane.services.vms.create(wanted).existing
    assert plane.services.vms.create(replace(wanted, pool=None)).existing, "none that is named may be any"
    refused("vm.exists", Conflict, lambda: plane.services.vms.create(replace(wanted, pool="other")))
    assert train(plane) == vm


def test_what_is_asked_about_a_pool_is_answered_as_create_does(plane: ControlPlane) -> None:
    question = Question(profile=moves.MIGRATABLE.name, disk_bytes=SIZE, pool="fast")
    explained = plane.services.capacity.explain(question).explanation
    assert explained.placement is not None
    assert explained.placement.host_id in {L40S_HOST, OTHER}
    large = replace(question, disk_bytes=2048 * GIB)
    refused("pool.full", NoCapacity, lambda: plane.services.capacity.explain(large))
    refused("pool.unknown", NotFound, lambda: plane.services.capacity.capacity(replace(question, pool="slow")))
    for host in (L40S_HOST, OTHER):
        plane.machine(host).pools.clear()
        plane.observer.observe(host)
    assert plane.services.capacity.explain(question).explanation.placement is None
