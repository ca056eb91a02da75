# SPDX-License-Identifier: Apache-2.0
"""Only hosts with UEFI firmware take VMs that boot by it: new ones, those that are moved, and in every answer."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.hosts.domain import DomainDescription, Firmware
from orchestrator.core.hosts.features import FEATURES, SWITCHES, FeaturesFound
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.place import place
from orchestrator.core.placement.preemption import place_preempting
from orchestrator.core.placement.rules.features import LacksFeature, NeedsFeature
from orchestrator.core.placement.views import HostView, Occupied, Placement, Refusal
from orchestrator.core.vms.vm import VmShape
from tests.unit.placement.fleets import ask, gpus, host

T4, Q8, Q16 = "Tesla T4", "GRID T4-8Q", "GRID T4-16Q"
BY_UEFI = (NeedsFeature("uefi"),)


def empty(name: str, *, uefi: bool) -> HostView:
    return replace(host(name, gpus(T4, 1, "time_sliced")), facts=() if uefi else (LacksFeature("uefi"),))


def holding(view: HostView, vm_id: str, profile: str = Q16, *, by_uefi: bool = True) -> HostView:
    cut = "time_sliced:16384" if profile == Q16 else "time_sliced:8192"
    item = Occupied(
        vm_id=vm_id, profile=profile, start=0, size=1, tenant="t", vcpus=1, memory_mib=1024,
        needs=BY_UEFI if by_uefi else (),
    )  # fmt: skip
    return replace(view, gpus=(replace(view.gpus[0], cut=cut, occupied=(item,)),), vms=frozenset({vm_id}))


def test_a_host_without_the_firmware_is_passed_over_and_named() -> None:
    request = ask("vm", Q16, needs=BY_UEFI)
    refused = place(request, [empty("a", uefi=False)])
    assert isinstance(refused, Refusal)
    assert [(one.code, one.subjects) for one in refused.reasons] == [("host.no_uefi", ("a",))]
    placed = place(request, [empty("a", uefi=False), empty("b", uefi=True)])
    assert isinstance(placed, Placement)
    assert placed.host_id == "b"
    assert isinstance(place(ask("vm", Q16), [empty("a", uefi=False)]), Placement)


def test_nobody_is_stopped_on_a_host_without_the_firmware() -> None:
    request = ask("vm", Q16, needs=BY_UEFI, priority=5)
    without = holding(empty("a", uefi=False), "low", by_uefi=False)
    assert place_preempting(request, [without], {"low"}) is None
    found = place_preempting(request, [without, holding(empty("b", uefi=True), "there")], {"low", "there"})
    assert found is not None
    assert found[1].victims == ("there",)


def test_room_is_counted_where_the_firmware_is() -> None:
    each = OneOfEach.among([empty("a", uefi=False), empty("b", uefi=True), empty("c", uefi=True)])
    assert each.room(ask("vm", Q16, needs=BY_UEFI)) == 2
    assert each.room(ask("vm", Q16)) == 3


def test_a_vm_with_a_tpm_goes_where_hosts_give_one() -> None:
    request = ask("vm", Q16, needs=(NeedsFeature("tpm"),))
    without = replace(empty("a", uefi=True), facts=(LacksFeature("tpm"),))
    refused = place(request, [without])
    assert isinstance(refused, Refusal)
    assert [(one.code, one.message) for one in refused.reasons] == [
        ("host.no_swtpm", "the host has no software TPM for VMs")
    ]
    placed = place(request, [without, empty("b", uefi=False)])
    assert isinstance(placed, Placement)
    assert placed.host_id == "b"


def test_each_feature_is_a_firmware_or_a_field_of_shapes_offerings_and_domains() -> None:
    by_field = set(FEATURES) - set(get_args(Firmware))
    assert set(SWITCHES) == by_field
    assert {found.name for found in fields(FeaturesFound)} == set(FEATURES)
    for noun in (VmShape, Offering, DomainDescription):
        assert by_field <= {member.name for member in fields(noun)}
