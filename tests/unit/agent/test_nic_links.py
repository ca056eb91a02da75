# SPDX-License-Identifier: Apache-2.0
"""Addresses of the host, as ``ip`` lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent import process
from orchestrator.agent.nic_links import own_addresses

_LISTED = """#!/bin/sh
cat <<'END'
[{},{"ifname":"eth0","addr_info":[{"family":"inet","local":"192.0.2.7","prefixlen":24,"scope":"global"},
{"family":"inet6","local":"2001:db8::7","prefixlen":64,"scope":"global"},{}]},{"ifname":"eth1","addr_info":[{}]}]
END
"""
"""iproute2 6.1 lists what it was not asked for, as an interface's link-local address, without anything."""


def test_addresses_of_another_scope_hide_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "ip"
    command.write_text(_LISTED)
    command.chmod(0o755)
    monkeypatch.setitem(process._ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")
    assert own_addresses() == ("192.0.2.7", "2001:db8::7")
