# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import count
from pathlib import Path

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client.async_http import unix_http
from orchestrator.client.connection import Connection, path_of
from orchestrator.client.generated.async_connection import AsyncConnection
from orchestrator.client.http import KEPT_S, UnixHttp
from orchestrator.client.location import state_directory
from orchestrator.core.errors import InvalidInput, NoCapacity, Retryable, Unknown

Answer = Callable[[bytes], Connection]


@pytest.fixture
def answering(tmp_path: Path) -> Answer:
    """A server that sends these bytes once and hangs up."""

    def serve(answer: bytes) -> Connection:
        path = tmp_path / "s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(1)

        def once() -> None:
            with listener, listener.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(answer)

        threading.Thread(target=once, daemon=True).start()
        return Connection(UnixHttp(path, 30))

    return serve


def _reply(status: str, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


def test_an_answer_is_its_json(answering: Answer) -> None:
    assert answering(_reply("200 OK", b'{"a": [1]}')).call("GET", "/v1/x") == {"a": [1]}


def test_an_answer_with_a_list_is_asked_for_once(answering: Answer) -> None:
    """The server hangs up after one."""
    whole = answering(_reply("200 OK", b'{"counts": {"watch": 1}, "gpus": [{"gpu": "a"}]}')).whole("/v1/x", {}, "gpus")
    assert whole == {"counts": {"watch": 1}, "gpus": [{"gpu": "a"}]}


def test_an_id_may_be_the_number_of_a_row(answering: Answer) -> None:
    assert answering(_reply("200 OK", b'[{"id": 4}]')).call("GET", "/v1/x") == [{"id": 4}]


@pytest.mark.parametrize("text", [b'"../x"', b'""', b"-4", b"true", b"1.5", b"[4]"])
def test_an_id_names_no_path(answering: Answer, text: bytes) -> None:
    with pytest.raises(Unknown):
        answering(_reply("200 OK", b'[{"id": ' + text + b"}]")).call("GET", "/v1/x")


@pytest.mark.parametrize("moment", [datetime(2070, 1, 31, tzinfo=UTC), datetime(2020, 12, 31, 23, 59, 59, tzinfo=UTC)])
def test_the_time_is_the_servers(answering: Answer, moment: datetime) -> None:
    connection = answering(_reply("200 OK", b"{}", f"date: {format_datetime(moment, usegmt=True)}\r\n"))
    connection.call("GET", "/v1/x")
    assert 0 <= connection.server_time() - moment.timestamp() < 600


@pytest.mark.parametrize("date", ["Wed, 31 Feb 2070 00:00:00 GMT", "yesterday", ""])
def test_a_server_that_says_no_time_has_ours(answering: Answer, date: str) -> None:
    connection = answering(_reply("200 OK", b"{}", f"date: {date}\r\n"))
    connection.call("GET", "/v1/x")
    assert abs(connection.server_time() - time.time()) < 600


def test_no_content_is_none(answering: Answer) -> None:
    assert answering(b"HTTP/1.1 204 No Content\r\n\r\n").call("DELETE", "/v1/x") is None


def test_a_problem_is_raised_as_what_it_is(answering: Answer) -> None:
    body = b"""{"family": "no_capacity", "code": "gpu.no_capacity", "detail": "full", "hint": "wait", "status": 507,
    "reasons": [{"code": "gpu.full", "message": "16 of 16", "subjects": ["gpu1"], "count": 3}]}"""
    with pytest.raises(NoCapacity) as caught:
        answering(_reply("507 x", body)).call("GET", "/v1/x")
    assert (caught.value.message, caught.value.hint, caught.value.reasons[0].count) == ("full", "wait", 3)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n",
        b"x" * 100_000,
        _reply("200 OK", b"not json"),
        _reply("500 x", b"<html>"),
        _reply("500 x", b"[]"),
        _reply("500 x", b"{}"),
    ],
    ids=lambda answer: ascii(answer[:40]),
)
def test_half_an_answer_is_no_answer(answering: Answer, answer: bytes) -> None:
    with pytest.raises(Unknown):
        answering(answer).call("GET", "/v1/x")


@pytest.fixture
def closing(tmp_path: Path) -> Iterator[tuple[Path, threading.Event]]:
    """A server that closes each connection after one answer, and what is set when it has."""
    path, closed = tmp_path / "s", threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def two_one_after_the_other() -> None:
            for _ in range(2):
                with listener.accept()[0] as peer:
                    peer.recv(65536)
                    peer.sendall(_reply("200 OK", b"[]"))
                closed.set()

        serving = threading.Thread(target=two_one_after_the_other, daemon=True)
        serving.start()
        yield path, closed
        serving.join(30)


def test_a_connection_that_rested_until_the_server_closed_it_is_opened_anew(
    closing: tuple[Path, threading.Event],
) -> None:
    path, closed = closing
    connection = Connection(UnixHttp(path, 30))
    assert connection.call("POST", "/v1/x", {}) == []
    assert closed.wait(30)
    assert connection.call("POST", "/v1/x", {}) == []


def test_with_asyncio_too(closing: tuple[Path, threading.Event]) -> None:
    path, closed = closing

    async def twice() -> None:
        connection = AsyncConnection(unix_http(path, {}), 0)
        assert await connection.call("POST", "/v1/x", {}) == []
        assert await asyncio.to_thread(closed.wait, 30)
        assert await connection.call("POST", "/v1/x", {}) == []
        await connection.close()

    asyncio.run(twice())


@pytest.fixture
def leaving(tmp_path: Path) -> Iterator[Path]:
    """A server that answers the first request of each connection, and ends the connection as the next one comes."""
    path = tmp_path / "s"

    class Leaving(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(_reply("200 OK", b"[]"))
            self.request.recv(65536)

    with socketserver.ThreadingUnixStreamServer(str(path), Leaving) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield path
        server.shutdown()


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Longer than a client keeps a connection, on the clock that it reads."""
    monotonic, rests = time.monotonic, count(1)

    def later() -> None:
        ahead_s = next(rests) * (KEPT_S + 0.1)
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + ahead_s)

    return later


def test_a_connection_that_the_server_may_be_about_to_close_is_not_used_again(
    leaving: Path, rest: Callable[[], None]
) -> None:
    http = UnixHttp(leaving, 30)
    http.open()
    connection = Connection(http)
    for _ in range(3):
        rest()
        assert connection.call("DELETE", "/v1/x") == []


def test_nor_with_asyncio(leaving: Path, rest: Callable[[], None]) -> None:
    async def thrice() -> None:
        connection = AsyncConnection(unix_http(leaving, {}), 0)
        for _ in range(3):
            assert await connection.call("DELETE", "/v1/x") == []
            rest()
        await connection.close()

    asyncio.run(thrice())


def test_our_server_keeps_connections_longer_than_clients_do() -> None:
    assert uvicorn.Config("nobody:app").timeout_keep_alive > KEPT_S + 1


def test_with_asyncio_a_path_too_long_for_a_socket_works(answering: Answer, tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 30)
    deep.symlink_to(tmp_path)
    answering(_reply("200 OK", b"[]"))
    assert asyncio.run(AsyncConnection(unix_http(deep / "s", {}), 0).call("GET", "/v1/x")) == []


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[]", b"\x00" * 99])
def test_with_asyncio_an_answer_that_is_none_is_a_lost_one(answering: Answer, tmp_path: Path, answer: bytes) -> None:
    answering(answer)
    with pytest.raises(Unknown) as caught:
        asyncio.run(AsyncConnection(unix_http(tmp_path / "s", {}), 0).call("GET", "/v1/x"))
    assert caught.value.code == "server.lost"


def test_nobody_there_is_something_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(Retryable):
        Connection(UnixHttp(tmp_path / "none", 30)).call("GET", "/v1/x")


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3))
def test_a_name_never_becomes_syntax_of_a_path(parts: list[str]) -> None:
    path = path_of(*parts)
    assert path.isascii()
    assert path.count("/") == len(parts) + 1
    assert not set(path) & set(" ?#\r\n\\")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(InvalidInput):
        path_of("vms", "")


@pytest.mark.parametrize(
    ("environment", "end"),
    [({"VGPUCTL_STATE": "/srv/x"}, "/srv/x"), ({"VGPUCTL_STATE": ""}, "vgpuctl"), ({}, "vgpuctl")],
)
def test_one_variable_moves_all_state(environment: dict[str, str], end: str) -> None:
    assert str(state_directory(environment)).endswith(end)


def test_a_relative_state_directory_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert state_directory({"VGPUCTL_STATE": "here"}) == tmp_path / "here"


def test_a_server_that_does_not_answer_is_not_one_that_went_away(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        with pytest.raises(Unknown) as caught:
            Connection(UnixHttp(tmp_path / "s", 0.05)).call("GET", "/v1/x")
    assert (caught.value.code, caught.value.message) == ("server.lost", "the server did not answer in time")
