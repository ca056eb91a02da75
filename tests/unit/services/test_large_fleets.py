# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalogue.gpu_tables import GpuTables, tables_of
from orchestrator.core.advice.overview import FleetUse, ModelUse, TenantUse
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.views import HostView
from orchestrator.services import offerings
from orchestrator.services.fleet import index as fleet_index
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Overcommit
from orchestrator.services.messages import ProfileFilter
from orchestrator.store.fleet import Fleet as StoredFleet
from orchestrator.store.records import HostRecord
from tests.fakes.control_plane import L40S_HOST, T4_HOST, control_plane, create_vm
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine, t4


@pytest.fixture
def afterwards_as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("afterwards_as_before")
@pytest.mark.parametrize(("many", "searched"), [(2, False), (3, True)])
def test_a_large_fleet_is_read_without_searching_it_for_garbage_and_never_searched_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int, searched: bool
) -> None:
    plane = control_plane(tmp_path)
    for host in (T4_HOST, L40S_HOST):
        plane.add_host(host)
    seen: list[bool] = []

    def tables(gpu: GpuSnapshot) -> GpuTables:
        seen.append(gc.isenabled())
        return tables_of(gpu)

    monkeypatch.setattr(fleet_index, "_MANY", many)
    gc.unfreeze()
    index = FleetIndex(plane.store, Overcommit(), tables)
    with index.current():
        pass
    assert set(seen) == {searched}
    assert gc.isenabled()
    assert (gc.get_freeze_count() == 0) == searched
    plane.store.close()


def test_what_changed_in_the_fleet_is_read_before_anybody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    read: list[str] = []
    hosts = StoredFleet.hosts

    def noted(self: StoredFleet, names: Collection[str] | None) -> Iterator[HostRecord]:
        for record in hosts(self, names):
            read.append(record.host.name)
            yield record

    monkeypatch.setattr(StoredFleet, "hosts", noted)
    plane.services.capacity.refresh()
    assert read == [T4_HOST]
    plane.services.vms.create(create_vm("vm", start=False))
    assert read == [T4_HOST]
    plane.store.close()


def test_a_list_of_profiles_asks_one_host_of_all_that_differ_only_in_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"h{number}" for number in range(4)]
    machines = {f"{name}.test": FakeMachine(machine_id=name, gpus=[t4()]) for name in names}
    plane = control_plane(tmp_path, hosts=FakeHosts(machines))
    asked: list[str] = []
    offers = offerings._offers

    def counted(host: HostView, offering: Offering) -> bool:
        asked.append(host.name)
        return offers(host, offering)

    monkeypatch.setattr(offerings, "_offers", counted)
    counts = []
    for number, name in enumerate(names):
        plane.add_host(name)
        for vm in range(number):
            plane.services.vms.create(replace(create_vm(f"vm-{number}-{vm}", start=False), host=name))
        plane.engine.drain()
        asked.clear()
        available = plane.services.profiles.list(only=ProfileFilter(available=True))
        counts.append(len(asked))
        assert {one.offering.name: one.hosts for one in available}["GRID T4-2Q"] == tuple(names[: number + 1])
    assert len(set(counts)) == 1
    plane.store.close()


def test_the_use_of_all_gpus_is_that_of_each_host_added_whatever_changes(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    index = FleetIndex(plane.store, Overcommit())

    def use() -> tuple[tuple[ModelUse, ...], dict[str, TenantUse]]:
        with index.current():
            kept, anew = index.use(), FleetUse.added(viewed.use for viewed in index.fleet().hosts)
        assert (kept.by_model(), kept.by_tenant()) == (anew.by_model(), anew.by_tenant())
        return kept.by_model(), kept.by_tenant()

    assert use() == ((), {})
    for host in (T4_HOST, L40S_HOST):
        plane.add_host(host)
    empty = use()
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert use() != empty
    plane.services.vms.delete("default", "train")
    plane.engine.drain()
    assert use() == empty
    plane.services.hosts.remove(L40S_HOST)
    plane.engine.drain()
    assert [of.model for of in use()[0]] == ["Tesla T4"]
    plane.store.close()
