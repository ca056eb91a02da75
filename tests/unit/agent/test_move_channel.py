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

    def send() -> None:
        with suppress(OSError):
            near.sendall(sent)

    with socket.socket(socket.AF_UNIX) as near, suppress(ConnectionResetError):
        near.settimeout(30)
        near.connect(str(path))
        threading.Thread(target=send, daemon=True).start()
        while len(got) < len(sent) and (more := near.recv(1 << 20)):
            got += more
    return got


def test_what_is_sent_arrives_whole_both_ways(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m", "disks": tmp_path / "d"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path, "disks": echo.path}, {}) as here,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()),
    ):
        assert exchange(twins["memory"], LARGE) == LARGE
        assert exchange(twins["disks"], b"x") == b"x"
        assert twins["disks"].stat().st_mode & 0o777 == 0o600
    assert not twins["memory"].exists()


def test_one_without_the_key_of_the_move_gets_nothing_and_learns_nothing(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m"}
    with move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as here:
        ends = [("127.0.0.1", here.port)]
        with move_channel.leaving(STRANGER, THERE.certificate, ends, twins, os.getuid()):
            assert exchange(twins["memory"], b"x") == b""
        with pytest.raises(Retryable), move_channel.leaving(HERE, STRANGER.certificate, ends, twins, os.getuid()):
            raise AssertionError("another host is there")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(ends[0]) as bare, context.wrap_socket(bare) as anybody:
            anybody.settimeout(30)
            with pytest.raises(OSError, match="certificate required"):
                anybody.recv(1)


def test_a_socket_that_is_not_of_the_move_is_not_reached(echo: Echo, tmp_path: Path) -> None:
    twins = {"shadow": tmp_path / "s"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as here,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()),
    ):
        assert exchange(twins["shadow"], b"x") == b""


def test_what_is_inspected_ends_at_what_is_refused(echo: Echo, tmp_path: Path) -> None:
    def passed(data: bytes) -> bytes:
        if b"!" in data:
            raise Denied("move.call_denied", "no")
        return data

    twins = {"libvirt": tmp_path / "l"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"libvirt": echo.path}, {"libvirt": lambda: passed}) as here,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()),
    ):
        assert exchange(twins["libvirt"], b"asked") == b"asked"
        assert exchange(twins["libvirt"], b"asked!") == b""
        assert [refusal.code for refusal in here.refusals] == ["move.call_denied"]


def test_nothing_listens_when_the_move_is_over_and_what_was_open_ends(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as here,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()),
    ):
        near = socket.socket(socket.AF_UNIX)
        near.connect(str(twins["memory"]))
        near.settimeout(30)
        near.sendall(b"x")
        assert near.recv(1) == b"x"
    assert near.recv(1) == b""
    near.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", here.port))


@pytest.fixture
def reached(echo: Echo, tmp_path: Path) -> Iterator[Path]:
    """Leads to the echo."""
    twins = {"memory": tmp_path / "m"}
    with (
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as here,
        move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()),
    ):
        yield twins["memory"]


def test_an_address_of_the_other_host_that_is_somebody_elses_here_is_passed_over(echo: Echo, tmp_path: Path) -> None:
    twins = {"memory": tmp_path / "m"}
    with (
        move_channel.coming(STRANGER, HERE.certificate, {}, {}) as anothers,
        move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as here,
    ):
        ends = [("127.0.0.1", anothers.port), ("127.0.0.1", here.port)]
        with move_channel.leaving(HERE, THERE.certificate, ends, twins, os.getuid()):
            assert exchange(twins["memory"], b"x") == b"x"


def test_no_link_is_followed_and_no_file_taken_for_a_socket(echo: Echo, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(echo.path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        twins = {"memory": tmp_path / "m"}
        with (
            move_channel.coming(THERE, HERE.certificate, {"memory": tmp_path / name}, {}) as here,
            move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()),
        ):
            assert exchange(twins["memory"], b"x") == b""


def test_a_socket_that_is_replaced_by_a_link_gives_nobody_what_is_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its handing over, by the account that owns the directory."""
    secret, open_ = tmp_path / "secret", os.open
    secret.touch(mode=0o640)
    path = tmp_path / "m"

    def replaced(name: Path, flags: int) -> int:
        path.unlink()
        path.symlink_to(secret)
        return open_(name, flags)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(OSError):
        move_channel._twin(path, os.getuid())
    assert secret.stat().st_mode & 0o777 == 0o640


def test_the_masks_of_other_threads_files_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def masked(_mask: int) -> int:
        raise AssertionError("it is the whole process's")

    monkeypatch.setattr(os, "umask", masked)
    listener = move_channel._twin(tmp_path / "m", os.getuid())
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o600
    listener.close()


def test_strangers_who_stay_keep_nobody_out(echo: Echo, tmp_path: Path) -> None:
    twins, strangers = {"memory": tmp_path / "m"}, list[socket.socket]()
    with move_channel.coming(THERE, HERE.certificate, {"memory": echo.path}, {}) as here:
        for _ in range(40):
            strangers.append(socket.create_connection(("127.0.0.1", here.port)))
        with move_channel.leaving(HERE, THERE.certificate, [("127.0.0.1", here.port)], twins, os.getuid()):
            assert exchange(twins["memory"], b"x") == b"x"
        ended = 0
        for stranger in strangers:
            stranger.settimeout(0.2)
            with suppress(TimeoutError):
                ended += stranger.recv(1) == b""
            stranger.close()
    assert ended >= 40 - 16


def test_a_move_has_no_more_connections_than_it_needs(reached: Path) -> None:
    opened = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    served = 0
    for near in opened:
        near.settimeout(30)
        near.connect(str(reached))
        with suppress(OSError):
            near.sendall(b"x")
            served += near.recv(1) == b"x"
    assert served == 16
    for near in opened:
        near.close()


@pytest.mark.parametrize("fault", [OSError(24, "Too many open files"), RuntimeError("can't start new thread")])
def test_one_that_cannot_be_taken_ends_no_move(
    reached: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    start, left = threading.Thread.start, [fault]

    def fails_once(thread: threading.Thread) -> None:
        if thread.name == "move" and left:
            raise left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails_once)
    assert exchange(reached, b"x") == b""
    assert exchange(reached, b"x") == b"x"


def test_a_host_that_cannot_be_reached_says_where_it_was_tried(tmp_path: Path) -> None:
    ends = [("127.0.0.1", 9), ("::1", 9)]
    with pytest.raises(Retryable) as refused, move_channel.leaving(HERE, THERE.certificate, ends, {}, os.getuid()):
        raise AssertionError("nobody listens there")
    assert refused.value.code == "move.unreachable"
    assert "127.0.0.1" in str(refused.value.details)
