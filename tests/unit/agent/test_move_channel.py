# SPDX-License-Identifier: Apache-2.0
"""The connections of a move between two hosts: who gets in, and that every byte arrives."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.adapters.agent_link.move_key import new_move_key
from orchestrator.agent import move_channel
from orchestrator.core.errors import Denied, Retryable

HERE, THERE, STRANGER = new_move_key(), new_move_key(), new_move_key()
LARGE = os.urandom(1024) * 20_000


class Echo:
    """A socket of the host that a VM comes to: sends back what it gets until that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Echo]:
    made = Echo(tmp_path / "e")
    yield made
    made.listener.close()


def exchange(path: Path, sent: bytes) -> bytes:
    """What comes back of what is sent; nothing more once the other end has closed."""
    got = b""
    with socket.socket(socket.AF_UNIX) as near, suppress(ConnectionResetError):
        near.settimeout(30)
        near.connect(str(path))
        threading.Thread(target=near.sendall, args=(sent,), daemon=True).start()
        while len(got) < len(sent) and (more := near.recv(1 << 20)):
            got += more
    return got


def test_what_is_sent_arrives_whole_both_ways(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m", "disks": tmp_path / "d"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path, "disks": echo.path}, {}) as port,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", port)], twins, os.getuid()),
    ):
        assert exchange(twins["memory"], LARGE) == LARGE
        assert exchange(twins["disks"], b"x") == b"x"
        assert twins["disks"].stat().st_mode & 0o777 == 0o600
    assert not twins["memory"].exists()


def test_one_without_the_key_of_the_move_gets_nothing_and_learns_nothing(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m"}
    with move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as port:
        ends = [("127.0.0.1", port)]
        with move_channel.leaving(STRANGER, THERE.certificate, ends, twins, os.getuid()):
            assert exchange(twins["memory"], b"x") == b""
        with move_channel.leaving(HERE, STRANGER.certificate, ends, twins, os.getuid()):
            assert exchange(twins["memory"], b"x") == b""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(ends[0]) as bare, context.wrap_socket(bare) as anybody:
            anybody.settimeout(30)
            with pytest.raises(OSError, match="certificate required"):
                anybody.recv(1)


def test_a_socket_that_is_not_of_the_move_is_not_reached(echo: Echo, tmp_path: Path) -> None:
    twins = {"shadow": tmp_path / "s"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as port,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", port)], twins, os.getuid()),
    ):
        assert exchange(twins["shadow"], b"x") == b""


def test_what_is_inspected_ends_at_what_is_refused(echo: Echo, tmp_path: Path) -> None:
    def passed(data: bytes) -> bytes:
        if b"!" in data:
            raise Denied("move.call_denied", "no")
        return data

    twins = {"libvirt": tmp_path / "l"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"libvirt": echo.path}, {"libvirt": lambda: passed}) as port,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", port)], twins, os.getuid()),
    ):
        assert exchange(twins["libvirt"], b"asked") == b"asked"
        assert exchange(twins["libvirt"], b"asked!") == b""


def test_nothing_listens_when_the_move_is_over_and_what_was_open_ends(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as port,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", port)], twins, os.getuid()),
    ):
        near = socket.socket(socket.AF_UNIX)
        near.connect(str(twins["memory"]))
        near.settimeout(30)
        near.sendall(b"x")
        assert near.recv(1) == b"x"
    assert near.recv(1) == b""
    near.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_a_host_that_cannot_be_reached_says_where_it_was_tried(tmp_path: Path) -> None:
    ends = [("127.0.0.1", 9), ("::1", 9)]
    with pytest.raises(Retryable) as refused, move_channel.leaving(HERE, THERE.certificate, ends, {}, os.getuid()):
        raise AssertionError("nobody listens there")
    assert refused.value.code == "move.unreachable"
    assert "127.0.0.1" in str(refused.value.details)
