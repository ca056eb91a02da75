# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.core.domain_xml.console import MAX_LOG_BYTES, console_log
from orchestrator.core.errors import InvalidInput
from tests.contract.agent_over_ssh import Chain

VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"


def test_the_end_of_what_a_vm_of_ours_printed_comes_over_the_channel(way: Chain, link: SshHostLink) -> None:
    host = way.host
    printed = way.agent.logs.paths.root / console_log(VM).removeprefix("/")
    printed.parent.mkdir(parents=True)
    printed.write_bytes(b"\x00\xff" * MAX_LOG_BYTES)
    assert link.console_log(host, VM, 100) == b"", "it is not ours"
    way.agent.ledger.claim(domain_key(VM), VM)
    assert link.console_log(host, VM, 3) == b"\xff\x00\xff"
    assert link.console_log(host, VM, MAX_LOG_BYTES) == b"\x00\xff" * (MAX_LOG_BYTES // 2)
    with pytest.raises(InvalidInput):
        link.console_log(host, VM, MAX_LOG_BYTES + 1)
