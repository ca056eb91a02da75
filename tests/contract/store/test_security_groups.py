# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.labels import About
from orchestrator.core.security_groups import GroupUse, SecurityGroup, SecurityRule
from orchestrator.core.vms.network import Network
from orchestrator.store.database import Store
from tests.contract.store.test_store import claim, put, vm
from tests.fakes.cleaned import CLEANED

RULES = (
    SecurityRule(direction="in", protocol="tcp", first_port=22, last_port=22, remote="10.0.0.0/8"),
    SecurityRule(direction="out"),
    SecurityRule(direction="out", protocol="udp", refuse=True),
)
WEB = SecurityGroup(tenant="red", name="web", rules=RULES, about=About(description="front", labels=(("a", "b"),)))
DB = SecurityGroup(tenant="blue", name="web", rules=(SecurityRule(direction="in", group="app"),))


def test_a_group_is_read_as_it_was_stored_and_goes(store: Store) -> None:
    with store.begin() as tx:
        tx.security_groups.add(WEB)
        tx.security_groups.add(DB)
        with pytest.raises(Conflict):
            tx.security_groups.add(replace(WEB, rules=()))
    with store.read() as tx:
        assert tx.security_groups.list() == (DB, WEB)
        assert tx.security_groups.list("red") == (WEB,)
        assert tx.security_groups.list("red")[0].about == WEB.about
    with store.begin() as tx:
        tx.security_groups.update(replace(WEB, rules=RULES[1:]))
        tx.security_groups.remove("blue", "web")
        tx.security_groups.remove("blue", "web")
        assert tx.security_groups.list() == (replace(WEB, rules=RULES[1:]),)


def test_what_it_is_on_goes_with_the_vm_and_the_network(store: Store) -> None:
    of = vm("a")
    put(store, of, claim(of, 1))
    uses = (GroupUse(network="red.n"), GroupUse(vm=of.id), GroupUse(vm=of.id, network="red.n"))
    with store.begin() as tx:
        tx.networks.add(Network(name="red.n", subnet="10.88.0.0/24"))
        tx.security_groups.add(replace(WEB, uses=uses))
    with store.read() as tx:
        assert set(tx.security_groups.list("red")[0].uses) == set(uses)
    with store.begin() as tx:
        tx.networks.remove("red.n")
        assert tx.security_groups.list("red")[0].uses == (GroupUse(vm=of.id),)
    with store.begin() as tx:
        tx.vms.remove(of.id, CLEANED)
        assert tx.security_groups.list("red")[0].uses == ()
        tx.security_groups.update(replace(WEB, uses=uses[:0]))
