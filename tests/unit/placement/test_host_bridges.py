# SPDX-License-Identifier: Apache-2.0
"""Only hosts with the bridges of a VM's networks will do: for whoever is stopped or moved for another, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.advice.explain import explain
from orchestrator.core.hosts.bridges import Bridge, Uplink
from orchestrator.core.placement.move_plans import plan_compaction, plan_drain
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.views import HostView, Occupied
from tests.unit.placement.fleets import ask, gpus, host

T4, Q8, Q16 = "Tesla T4", "GRID T4-8Q", "GRID T4-16Q"
BR0 = Bridge(name="br0", kind="linux")
TAGGED = Bridge(name="br120", kind="linux", vlans=("br0.120",))
SWITCH = Bridge(name="br0", kind="openvswitch")
OFFICE = (Uplink(bridge="br0"),)
LAB = (Uplink(bridge="br0", vlan=120),)


def bridged(name: str, *bridges: Bridge) -> HostView:
    return replace(host(name, gpus(T4, 1, "time_sliced")), bridges=bridges)


def holding(view: HostView, vm_id: str, uplinks: tuple[Uplink, ...] = (), profile: str = Q16) -> HostView:
    cut = "time_sliced:16384" if profile == Q16 else "time_sliced:8192"
    item = Occupied(
        vm_id=vm_id, profile=profile, start=0, size=1, tenant="t", migratable=True, vcpus=1, memory_mib=1024,
        uplinks=uplinks,
    )  # fmt: skip
    return replace(view, gpus=(replace(view.gpus[0], cut=cut, occupied=(item,)),), vms=frozenset({vm_id}))


@pytest.mark.parametrize(
    ("uplinks", "there", "reason"),
    [(OFFICE, (), "host.no_bridge"), (OFFICE, (SWITCH,), "host.openvswitch"), (LAB, (BR0,), "host.no_bridge")],
)
def test_who_is_moved_away_goes_where_its_bridges_are(
    uplinks: tuple[Uplink, ...], there: tuple[Bridge, ...], reason: str
) -> None:
    source, wrong = holding(bridged("a", BR0, TAGGED), "vm", uplinks), bridged("b", *there)
    found = plan_drain([source, wrong], source)
    assert found.moves == ()
    ((stays,),) = [one.reasons for one in found.stays]
    assert stays.code == reason
    right = bridged("z", BR0, TAGGED)
    assert [move.to_host for move in plan_drain([source, wrong, right], source).moves] == ["z"]


def test_gpus_are_not_freed_by_moving_vms_off_their_bridges() -> None:
    office = holding(bridged("a", BR0), "one", OFFICE, Q8)
    assert plan_compaction([office, holding(bridged("b"), "two", profile=Q8)]).moves != ()
    assert plan_compaction([office, holding(bridged("b", TAGGED), "two", LAB, Q8)]).moves == ()


def test_a_remedy_moves_nobody_off_its_bridges() -> None:
    request = ask("vm", Q16, gpu_models=(T4,), uplinks=OFFICE)
    full = holding(bridged("a", BR0), "on the bridge", OFFICE)
    told = {remedy.kind for remedy in explain(request, [full, bridged("free")]).remedies}
    assert told == {"deletions"}
    loose = holding(bridged("a", BR0), "anywhere")
    assert "moves" in {remedy.kind for remedy in explain(request, [loose, bridged("free")]).remedies}


def test_nobody_is_stopped_on_a_host_without_the_bridge() -> None:
    request = ask("vm", Q16, uplinks=OFFICE, priority=5)
    assert place_preempting(request, [holding(bridged("a"), "low")], {"low"}) is None
    found = place_preempting(
        request, [holding(bridged("a"), "low"), holding(bridged("b", BR0), "there")], {"low", "there"}
    )
    assert found is not None
    assert found[1].victims == ("there",)


def test_room_is_counted_where_the_bridges_are_and_is_proved_to_be_all() -> None:
    each = OneOfEach.among([bridged("a"), bridged("b", SWITCH), bridged("c", BR0)])
    assert each.room(ask("vm", Q16, uplinks=OFFICE)) == (1, True)
