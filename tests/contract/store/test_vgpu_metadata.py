# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.store.database import Store
from tests.contract.store.test_store import vm
from tests.fakes.cleaned import CLEANED

FIRST, SECOND = "0000:41:00.0", "0000:42:00.0"


def test_what_drivers_say_is_kept_with_the_vm_and_goes_with_it(store: Store) -> None:
    with store.begin() as tx:
        for number, name in enumerate(("a", "b")):
            tx.vms.add(vm(name, number))
        a, b = (one.id for one in tx.vms.list(tenant=vm("a").spec.tenant))
        tx.vgpu_metadata.keep({a: {FIRST: ("AA==", "AQ==")}, b: {FIRST: ("AA==",)}})
        tx.vgpu_metadata.keep({a: {SECOND: ("AA==",)}})
        tx.vgpu_metadata.keep({})
    with store.read() as tx:
        assert tx.vgpu_metadata.of(a) == {SECOND: ("AA==",)}
        assert tx.vgpu_metadata.of(b) == {FIRST: ("AA==",)}
    with store.begin() as tx:
        tx.vms.remove(a, CLEANED)
        assert tx.vgpu_metadata.of(a) == {}
        assert tx.vgpu_metadata.of(b) == {FIRST: ("AA==",)}
