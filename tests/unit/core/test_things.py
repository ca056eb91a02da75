# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from orchestrator.core.attachments.host_facts import things_of
from orchestrator.core.hosts.snapshot import NOT_TOLD
from tests.fakes.world import host_info


def test_a_host_whose_libvirt_does_not_answer_is_not_believed_to_have_nothing() -> None:
    snapshot = host_info("h").snapshot
    assert snapshot is not None
    assert things_of(snapshot, "a-vm") == ()
    silent = replace(snapshot, libvirt_version=NOT_TOLD, domains=(), problems=("libvirt does not answer",))
    assert things_of(silent, "a-vm") == ("what libvirt has: it did not answer",)
