# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.guest.guest import GuestRecord, GuestRun, with_run


def test_a_look_at_the_guest_keeps_what_only_other_roles_can_tell() -> None:
    told = {"docker": "26.1.5", "container_toolkit": "1.17.8", "kubelet": "1.31.4"}
    record = with_run(GuestRecord(vm="v", host_key=None), GuestRun(host_key="k", versions=told))
    seen = GuestFacts(driver="580.95.05")
    looked = with_run(record, GuestRun(host_key="k", facts=seen, versions={"cuda_toolkit": "12.8"}))
    assert looked.facts == GuestFacts(
        driver="580.95.05", cuda_toolkit="12.8", docker="26.1.5", container_toolkit="1.17.8", kubelet="1.31.4"
    )


def test_a_look_that_finds_no_toolkit_any_more_says_so() -> None:
    record = with_run(GuestRecord(vm="v", host_key=None), GuestRun(host_key="k", versions={"cuda_toolkit": "12.8"}))
    assert with_run(record, GuestRun(host_key="k", facts=GuestFacts())).facts.cuda_toolkit is None


def test_a_look_tells_of_cudnn_whether_it_is_there_or_gone() -> None:
    record = with_run(GuestRecord(vm="v", host_key=None), GuestRun(host_key="k", versions={"cudnn": "9.13.1"}))
    assert with_run(record, GuestRun(host_key="k", facts=GuestFacts(cudnn="9.14.0"))).facts.cudnn == "9.14.0"
    assert with_run(record, GuestRun(host_key="k", facts=GuestFacts())).facts.cudnn is None
