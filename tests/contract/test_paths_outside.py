# SPDX-License-Identifier: Apache-2.0
"""Whether a VM reaches a floating address, as OVN's own ovn-trace says it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.adapters.ovn.tracing import OvnTracer
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.overlay import NewOvnNetwork, port_id
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.services.network_paths import NetworkPath, NetworkPathService
from tests.contract.test_groups_in_ovn import MaybeAway
from tests.contract.test_ways_out import create, leading_outside, refused
from tests.fakes.control_plane import T4_HOST, ControlPlane
from tests.fakes.ovn_databases import RealOvn

Explain = Callable[[str, str, int], NetworkPath]
SSH = SecurityRule(direction="in", protocol="tcp", first_port=22, last_port=22, remote="192.0.2.0/24")


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    """web and db on a network that leads out, far on another one that does, alone on one that does not, beyond on the
    provider network."""
    with leading_outside(tmp_path, ovn, MaybeAway(ovn)) as made:
        made.services.networks.add_overlay("red", NewOvnNetwork(subnets=("10.1.0.0/24",)), "default", "outside")
        made.services.networks.add_overlay("grey", NewOvnNetwork(subnets=("10.2.0.0/24",)), "default")
        made.services.networks.share("outside", shared=True)
        places = ("web", "blue"), ("db", "blue"), ("far", "red"), ("alone", "grey"), ("beyond", "outside")
        for name, network in places:
            create(made, name, network)
        made.services.security_groups.create("default", "ssh", [SSH])
        made.services.security_groups.change_uses("default", "ssh", [NamedUse(vm="db")])
        yield made


@pytest.fixture
def explain(plane: ControlPlane, ovn: RealOvn) -> Explain:
    south = ovn.socket("southbound")
    service = NetworkPathService(
        store=plane.store, tracer=OvnTracer(southbound=(south,), keys=tuple),
        overlay=OvnDatabases(northbound=(), southbound=(south,), trust=lambda: None),
    )  # fmt: skip

    def explained(sender: str, receiver: str, port: int) -> NetworkPath:
        ovn.nbctl("--wait=sb", "--timeout=30", "sync")
        with plane.store.read() as tx:
            for vm in tx.vms.list(tenant="default"):
                own = port_id(vm.id, 0)
                ovn.sbctl("--may-exist", "lsp-bind", own, T4_HOST, "--", "set", "port_binding", own, "up=true")
        return service.explain("default", sender, receiver, "tcp", port)

    return explained


@pytest.mark.parametrize("sender", ["web", "far", "beyond"])
def test_a_floating_address_is_the_vm_that_has_it_through_the_way_out(
    plane: ControlPlane, explain: Explain, sender: str
) -> None:
    floating = plane.services.floating_addresses
    address = floating.create("default").address
    floating.attach("default", address, "db")
    path = explain(sender, address, 22)
    assert (path.arrives, path.receiver_vm, path.receiver_network, path.obstacles) == (True, "db", "blue", ())
    assert path.receiver == plane.services.vms.get("default", "db").ports[0].address
    assert [(each.direction, each.group, each.rule) for each in path.judgements] == [
        ("out", "default", SecurityRule(direction="out")), ("in", "ssh", SSH),
    ]  # fmt: skip
    path = explain(sender, address, 80)
    assert (path.arrives, path.judgements[-1].group, path.judgements[-1].rule) == (False, "ssh", None)


def test_what_leads_nowhere_is_refused_by_name(plane: ControlPlane, explain: Explain) -> None:
    floating = plane.services.floating_addresses
    address = floating.create("default").address
    refused("address.leads_nowhere", Conflict, explain, "web", address, 22)
    refused("address.unknown", NotFound, explain, "web", "192.0.2.250", 22)
    floating.attach("default", address, "db")
    refused("network.not_together", Conflict, explain, "alone", address, 22)
    refused("network.same_vm", InvalidInput, explain, "db", address, 22)
