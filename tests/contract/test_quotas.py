# SPDX-License-Identifier: Apache-2.0
"""Quotas in the transaction that claims, on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orchestrator.adapters.state.clock import RandomIds
from orchestrator.core.errors import QuotaExceeded
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.quota import QuotaUse
from orchestrator.services.vms.planning import Planner, VmPlan
from orchestrator.services.vms.vms import VmService
from tests.fakes.control_plane import KEY, ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeGpu, FakeMachine, l40s, t4
from tests.fakes.new_database import new_url
from tests.fakes.recount import miscounted
from tests.postgres.cluster import Cluster

GIB = 1024
CLIENTS = 64
DATABASES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Site:
    plane: ControlPlane
    vms: VmService

    def create(self, tenant: str, name: str, profile: str) -> bool:
        """Whether the quota allows it."""
        try:
            self.vms.create(replace(create_vm(name, profile=profile), tenant=tenant))
        except QuotaExceeded:
            return False
        return True

    def limit(self, tenant: str, **amounts: int) -> None:
        if tenant != EVERYWHERE:
            self.plane.services.tenancy.tenants.create(tenant)
        self.plane.services.tenancy.quotas.change(tenant, amounts)

    def held(self, tenant: str) -> dict[str, QuotaUse]:
        return {one.resource: one for one in self.plane.services.tenancy.quotas.get(tenant)}


def _site(tmp_path: Path, gpus: list[FakeGpu], url: str | None) -> Site:
    machine = FakeMachine(machine_id="m1", gpus=gpus, vcpus=64, memory_mib=1024 * GIB)
    plane = control_plane(tmp_path, hosts=FakeHosts({"big.test": machine}), url=url)
    plane.add_host("big")
    planner = replace(plane.services.vms.planner, ids=RandomIds())  # counted ones are not made for threads
    return Site(plane, replace(plane.services.vms, planner=planner))


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    postgres: Cluster = request.getfixturevalue("postgres")
    return new_url(postgres, KEY)


@pytest.fixture
def eight_l40s(tmp_path: Path) -> Iterator[Site]:
    site = _site(tmp_path, [l40s(f"0000:{bus}:00.0") for bus in range(81, 89)], None)
    yield site
    site.plane.store.close()


def test_eight_gpus_are_shared_by_three_tenants_and_a_pool(eight_l40s: Site) -> None:
    site, whole = eight_l40s, "NVIDIA L40S-48Q"
    site.limit("research", devices=2, framebuffer=40 * GIB)
    site.limit("analysis", devices=1, framebuffer=20 * GIB)
    site.limit("testing", devices=1, framebuffer=16 * GIB)
    site.limit(EVERYWHERE, devices=4, framebuffer=4 * 48 * GIB)
    site.limit("visitors")
    # The pool is emptied first, by one with no quota of its own and by one beyond its own.
    assert [site.create("visitors", f"v{number}", whole) for number in range(3)] == [True, True, True]
    assert site.create("testing", "own", "NVIDIA L40S-12Q")
    assert site.create("testing", "beyond", whole)
    for tenant in ("visitors", "testing"):
        assert not site.create(tenant, "more", whole)
    # What is guaranteed is still there.
    assert site.create("research", "r1", "NVIDIA L40S-24Q")
    assert site.create("research", "r2", "NVIDIA L40S-12Q")
    assert not site.create("research", "r3", "NVIDIA L40S-12Q")
    assert site.create("analysis", "a1", "NVIDIA L40S-12Q")
    assert not site.create("analysis", "a2", "NVIDIA L40S-12Q")
    assert site.held(EVERYWHERE)["devices"] == QuotaUse(resource="devices", limit=4, used=4)
    assert site.held("research")["framebuffer"] == QuotaUse(resource="framebuffer", limit=40 * GIB, used=36 * GIB)
    # What is given back can be taken by the next.
    site.vms.delete("visitors", "v0")
    site.plane.engine.drain()
    assert site.create("research", "r3", whole)
    assert not site.create("analysis", "a2", "NVIDIA L40S-12Q")


@pytest.mark.fault("F128")
def test_sixty_four_clients_at_once_never_exceed_a_quota_and_none_is_starved(tmp_path: Path, url: str | None) -> None:
    site = _site(tmp_path, [t4(f"0000:{bus}:00.0") for bus in range(41, 46)], url)
    tenants = ("one", "two", "three", "four")
    for tenant in tenants:
        site.limit(tenant, devices=5)
    site.limit(EVERYWHERE, devices=8)
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(
            clients.map(lambda number: site.create(tenants[number % 4], f"vm{number}", "GRID T4-1Q"), range(CLIENTS))
        )
    taken = Counter(vm.spec.tenant for vm in site.vms.list(None))
    assert answers.count(True) == taken.total() == 4 * 5 + 8
    assert all(taken[tenant] >= 5 for tenant in tenants)
    assert site.held(EVERYWHERE)["devices"].used == 8
    site.plane.store.close()


def test_a_refused_vm_leaves_nothing_behind_and_a_plan_is_refused_too(eight_l40s: Site) -> None:
    site = eight_l40s
    site.limit("research", vms=0)
    wanted = replace(create_vm("x", profile="NVIDIA L40S-12Q"), tenant="research")
    for ask in (site.vms.create, site.vms.plan):
        with pytest.raises(QuotaExceeded):
            ask(wanted)
    with site.plane.store.read() as tx:
        assert tx.vms.list(tenant="research") == ()
        assert tx.claims.of_host("big") == ()
        assert [one.kind for one in tx.operations.list()] == ["add_host"]


def test_the_fullest_quota_is_counted_without_a_name_and_a_pool_is_the_end_of_all(eight_l40s: Site) -> None:
    fullest = eight_l40s.plane.services.tenancy.quotas.fullest
    assert fullest() == {}
    eight_l40s.limit("red", devices=4, vcpus=100)
    eight_l40s.limit("blue", devices=10, images=0)
    for number in range(3):
        assert eight_l40s.create("red", f"r{number}", "NVIDIA L40S-48Q")
    assert eight_l40s.create("blue", "b", "NVIDIA L40S-48Q")
    assert fullest() == {"devices": 0.75, "vcpus": 0.03}
    eight_l40s.limit(EVERYWHERE, devices=2)
    assert fullest() == {"devices": 0.0, "vcpus": 0.03}
    assert eight_l40s.create("red", "own", "NVIDIA L40S-48Q")
    assert eight_l40s.create("red", "pooled", "NVIDIA L40S-48Q")
    assert fullest()["devices"] == 0.5


def test_a_quota_goes_with_its_tenant(eight_l40s: Site) -> None:
    site = eight_l40s
    site.limit("short", vms=0)
    site.plane.services.tenancy.tenants.delete("short")
    site.plane.services.tenancy.tenants.create("short")
    assert site.held("short")["vms"].limit is None


@dataclass(frozen=True, kw_only=True)
class OvertakenPlanner(Planner):
    """Somebody else claims between its first plan and the claim that follows."""

    overtake: list[Callable[[], object]]
    planned: list[str] = field(default_factory=list)

    def reserve(self, plan: VmPlan) -> None:
        super().reserve(plan)
        self.planned.append(plan.vm.spec.name)
        if self.overtake:
            self.overtake.pop()()


@pytest.mark.parametrize("owner", ["late", EVERYWHERE])
def test_who_loses_the_last_of_a_quota_plans_again_and_is_refused(tmp_path: Path, url: str | None, owner: str) -> None:
    shared = url or f"sqlite:///{tmp_path / 'shared.sqlite'}"
    site = _site(tmp_path / "one", [t4(), t4("0000:42:00.0")], shared)
    other = control_plane(tmp_path / "two", hosts=site.plane.hosts, url=shared)
    for tenant in ("late", "early"):
        site.limit(tenant)
    site.plane.services.tenancy.quotas.change(owner, {"vms": 1})
    planner = site.vms.planner
    first = replace(other.services.vms, planner=replace(other.services.vms.planner, ids=RandomIds()))
    elsewhere = replace(create_vm("first", profile="GRID T4-1Q"), host="big", gpu="0000:42:00.0")
    winner = replace(elsewhere, tenant="early" if owner == EVERYWHERE else "late")
    overtaken = OvertakenPlanner(
        index=planner.index, clock=planner.clock, ids=planner.ids, overtake=[lambda: first.create(winner)]
    )
    with pytest.raises(QuotaExceeded) as caught:
        replace(site.vms, planner=overtaken).create(replace(create_vm("second", profile="GRID T4-1Q"), tenant="late"))
    assert "the quota of vms is " in caught.value.message
    assert overtaken.planned == ["second"]  # what it planned again the quota refused before it was claimed
    assert overtaken.overtake == []
    with site.plane.store.read() as tx:
        assert [vm.spec.name for vm in tx.vms.list()] == ["first"]
        assert list(miscounted(tx)) == []
    for plane in (site.plane, other):
        plane.store.close()


def test_a_quota_below_what_is_held_only_refuses_what_is_new(eight_l40s: Site) -> None:
    site, vgpu = eight_l40s, "NVIDIA L40S-12Q"
    site.limit("research")
    assert [site.create("research", name, vgpu) for name in ("a", "b")] == [True, True]
    site.plane.engine.drain()
    site.plane.services.tenancy.quotas.change("research", {"devices": 1})
    assert site.held("research")["devices"] == QuotaUse(resource="devices", limit=1, used=2)
    for verb in (site.vms.stop, site.vms.start, site.vms.restart):
        verb("research", "a")
        site.plane.engine.drain()
    assert not site.create("research", "c", vgpu)
    site.vms.delete("research", "a")
    site.plane.engine.drain()
    assert not site.create("research", "c", vgpu)
    site.vms.delete("research", "b")
    site.plane.engine.drain()
    assert site.create("research", "c", vgpu)
