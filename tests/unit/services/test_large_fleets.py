# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.catalogue.gpu_tables import GpuTables, tables_of
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.services.fleet import index as fleet_index
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Overcommit
from tests.fakes.control_plane import L40S_HOST, T4_HOST, control_plane


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
