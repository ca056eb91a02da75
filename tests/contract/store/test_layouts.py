# SPDX-License-Identifier: Apache-2.0
"""GPUs that are kept for a MIG layout: no VM's, in the database itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.gpu.device import InstancePlace
from orchestrator.core.hosts.mig_layout import MigLayout
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import GPU, claim, put, vm


def test_a_gpu_that_is_kept_for_a_layout_is_nobody_elses_until_it_is_dropped(store: Store) -> None:
    layout = MigLayout(gpu=GPU, on=True, instances=(InstancePlace("1g.10gb", 0), InstancePlace("1g.20gb", 2)))
    for wanted in (replace(layout, instances=()), layout):
        with store.begin() as tx:
            tx.hosts.keep_layout("h1", wanted)
    with store.read() as tx:
        assert tx.hosts.get("h1").mig_layouts == tx.hosts.list()[0].mig_layouts == (layout,)
        assert next(iter(tx.fleet.hosts(None))).host.mig_layouts == (layout,)
    with pytest.raises(ClaimLost):
        put(store, vm("a"), claim(vm("a"), 0))
    for _ in range(2):
        with store.begin() as tx:
            tx.hosts.drop_layout("h1", GPU)
    put(store, vm("a"), claim(vm("a"), 0))
    with pytest.raises(ClaimLost), store.begin() as tx:
        tx.hosts.keep_layout("h1", layout)


def test_a_host_that_goes_takes_its_layouts_along(store: Store) -> None:
    with store.begin() as tx:
        tx.hosts.keep_layout("h1", MigLayout(gpu=GPU, on=True))
        tx.hosts.remove("h1")
    with store.read() as tx:
        assert tx.hosts.list() == ()
