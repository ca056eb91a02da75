# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.gpu.device import Device
from orchestrator.core.vms.claim import DeviceClaim
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from tests.contract.store.test_store import GPU, claim, put, vm
from tests.fakes.cleaned import CLEANED


def test_several_devices_of_a_vm_keep_their_slots_and_functions_apart(store: Store) -> None:
    first = DeviceClaim(gpu=GPU, cut="mixed", slots=(0, 1), function="0000:41:00.4")
    second = DeviceClaim(gpu=GPU, cut="mixed", slots=(3,), function="0000:41:00.5")
    both = replace(claim(vm("a")), devices=(first, second))
    device = Device(kind="mdev", gpu=GPU, parent=GPU, name="0000:41:00.4", type_name="GRID T4-2Q")
    put(store, replace(vm("a"), devices=(device, replace(device, name="0000:41:00.5"))), both)
    with store.begin() as tx:
        assert tx.claims.list() == (both,)
        tx.claims.move_function(vm("a").id, 1, None)
        assert tx.claims.find(vm("a").id) == replace(both, devices=(first, replace(second, function=None)))
    with pytest.raises(ClaimLost):
        put(store, vm("b"), claim(vm("b"), 3, cut="mixed"))
    with store.begin() as tx:
        tx.vms.remove(vm("a").id, CLEANED)
        assert tx.claims.list() == ()
    put(store, vm("b"), claim(vm("b"), 3))
