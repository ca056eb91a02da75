# SPDX-License-Identifier: Apache-2.0
"""Machines that are no SSH servers: each is told in one line, with its port."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from orchestrator.adapters.agent_link import ssh
from orchestrator.core.errors import Retryable
from tests.fakes.ports import own_port
from tests.hostile.test_frames import HOST


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-x\r\n", b"SSH-2.0-x"])
def test_a_machine_that_falls_silent_is_unreachable_and_no_failed_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(ssh, "HANDSHAKE_SECONDS", 0.5)
    key = tmp_path / "key"
    key.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        ways = (
            lambda: ssh.scan_host_key("127.0.0.1", port),
            lambda: ssh.connect(
                replace(HOST, address="127.0.0.1", port=port), user="u", key_file=key, lost=lambda: None
            ),
        )
        for way in ways:
            with pytest.raises(Retryable) as refused:
                with_answer(silent, said, way)
            assert refused.value.code == "host.unreachable"
            assert str(port) in refused.value.message
            assert "\n" not in refused.value.message


def with_answer(silent: socket.socket, said: bytes, way: object) -> None:
    def answer() -> None:
        connection, _ = silent.accept()
        connection.sendall(said)
        held.append(connection)

    held: list[socket.socket] = []
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        assert callable(way)
        way()
    finally:
        thread.join(5)
        for one in held:
            one.close()


@pytest.mark.parametrize(
    ("address", "why"), [("127.0.0.1", "nothing listens there"), ("no.such.invalid", "not known"), ("a" * 70, "known")]
)
def test_a_name_that_is_not_known_and_a_port_that_refuses_are_told_apart(address: str, why: str) -> None:
    port = own_port()
    with pytest.raises(Retryable) as refused:
        ssh.scan_host_key(address, port)
    assert refused.value.code == "host.unreachable"
    assert why in refused.value.message
    assert f"port {port}" in refused.value.message
