# SPDX-License-Identifier: Apache-2.0
"""What hosts tell of OVN's tunnels and of cards that it has not set up becomes findings where such VMs are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.overlay import Port, port_id
from tests.fakes.control_plane import T4_HOST, control_plane, create_vm

BR_INT = Bridge(
    name="br-int",
    kind="openvswitch",
    silent_tunnels=("192.0.2.7: BFD hears nothing",),
    slow_tunnels=("192.0.2.8: packets are lost",),
)


def test_a_tunnel_that_carries_nothing_and_a_card_that_waits_are_told_of(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    plane.add_host(T4_HOST)
    plane.services.vms.create(create_vm("train", profile="GRID T4-2Q"))
    plane.engine.drain()
    vm = plane.services.vms.get("default", "train")
    bridge = replace(BR_INT, waiting_ports=(port_id(vm.id, 0),))

    def observed() -> dict[str, str]:
        plane.machine(T4_HOST).bridges = (bridge,)
        plane.services.findings.observe(None)
        listed = (each.finding for each in plane.services.findings.list(host=None))
        return {each.code: each.observed for each in listed if each.code.startswith("ovn.")}

    assert observed() == {}  # none of its VMs has a card there
    with plane.store.begin() as tx:
        tx.vms.update(replace(vm, ports=(Port(network="default.wide", address="10.0.0.5"),)))
    assert observed() == {
        "ovn.tunnel_silent": "192.0.2.7: BFD hears nothing",
        "ovn.tunnel_slow": "192.0.2.8: packets are lost",
        "ovn.card_waits": "ovn-controller has not set them up",
    }
    bridge = replace(bridge, silent_tunnels=(), slow_tunnels=(), waiting_ports=(), pings_refused=True)
    assert observed() == {"ovn.tunnels_unmeasured": "the kernel lets the agent send no pings"}
    bridge = replace(bridge, pings_refused=False)
    assert observed() == {}
    plane.store.close()
