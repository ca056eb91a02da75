# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.api.schemas.capacity import AskedAnswer
from orchestrator.api.schemas.profiles import ProfileAnswer
from orchestrator.core.offerings.offering import Offering, vm_size
from orchestrator.core.placement.rules.nodes import OfNodes
from orchestrator.core.placement.views import Request
from orchestrator.services.messages import ProfileInfo


def test_vcpus_with_cpus_of_their_own_are_among_those_that_were_asked_for() -> None:
    asked = Request(
        vm_id="a", profile="GRID T4-4Q", vcpus=0, memory_mib=4096, tenant="default",
        needs=(OfNodes(6, 4096, alone=True),),
    )  # fmt: skip
    assert AskedAnswer.of(asked).vcpus == 6


def test_a_profile_says_which_cpus_its_vms_have() -> None:
    offering = Offering(name="near", kind="time_sliced", vgpu_type="GRID T4-4Q", cpu="pinned", numa="strict")
    info = ProfileInfo(
        offering=offering, hosts=(), host_count=0, free=0, framebuffer_mib=4096, size=vm_size(offering, 4096)
    )  # fmt: skip
    told = ProfileAnswer.of(info, watching=False).model_dump()
    assert (told["cpu"], told["numa"]) == ("pinned", "strict")
