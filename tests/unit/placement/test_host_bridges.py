# SPDX-License-Identifier: Apache-2.0
"""Only hosts with the bridges of a VM's networks will do: for whoever is stopped or moved for another, too."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.hosts.bridges import Bridge, Uplink
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.bridges import HasBridges, NeedsBridges
from orchestrator.core.placement.views import HostView, Occupied
from tests.unit.placement.fleets import ask, gpus, host

T4, Q8, Q16 = "Tesla T4", "GRID T4-8Q", "GRID T4-16Q"
BR0 = Bridge(name="br0", kind="linux")
TAGGED = Bridge(name="br120", kind="linux", vlans=("br0.120",))
SWITCH = Bridge(name="br0", kind="openvswitch")
OFFICE = (Uplink(bridge="br0"),)
LAB = (Uplink(bridge="br0", vlan=120),)


def bridged(name: str, *bridges: Bridge) -> HostView:
    return replace(host(name, gpus(T4, 1, "time_sliced")), facts=(HasBridges(bridges),))


def holding(view: HostView, vm_id: str, uplinks: tuple[Uplink, ...] = (), profile: str = Q16) -> HostView:
    cut = "time_sliced:16384" if profile == Q16 else "time_sliced:8192"
    item = Occupied(
        vm_id=vm_id, profile=profile, start=0, size=1, tenant="t", vcpus=1, memory_mib=1024,
        needs=(NeedsBridges(uplinks),),
    )  # fmt: skip
    return replace(view, gpus=(replace(view.gpus[0], cut=cut, occupied=(item,)),), vms=frozenset({vm_id}))


def test_nobody_is_stopped_on_a_host_without_the_bridge() -> None:
    request = ask("vm", Q16, needs=(NeedsBridges(OFFICE),), priority=5)
    assert place_preempting(request, [holding(bridged("a"), "low")], {"low"}) is None
    found = place_preempting(
        request, [holding(bridged("a"), "low"), holding(bridged("b", BR0), "there")], {"low", "there"}
    )
    assert found is not None
    assert found[1].victims == ("there",)


def test_room_is_counted_where_the_bridges_are() -> None:
    each = OneOfEach.among([bridged("a"), bridged("b", SWITCH), bridged("c", BR0)])
    assert each.room(ask("vm", Q16, needs=(NeedsBridges(OFFICE),))) == 1
