# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.core.guest import GuestFacts, GuestRecord, GuestRun, with_run


def test_a_look_at_the_guest_keeps_what_only_other_roles_can_tell() -> None:
    record = with_run(
        GuestRecord(vm="v", host_key=None), GuestRun(host_key="k", docker="26.1.5", container_toolkit="1.17.8")
    )
    looked = with_run(record, GuestRun(host_key="k", facts=GuestFacts(driver="580.95.05"), cuda_toolkit="12.8"))
    assert looked.facts == GuestFacts(
        driver="580.95.05", cuda_toolkit="12.8", docker="26.1.5", container_toolkit="1.17.8"
    )
